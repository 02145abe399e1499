"""Kill an agent at every point of its run, resume it each time, and report what was repeated, lost or different.

APP names the agent as "module:attribute": a holdfast.testing.Drill, a handler, or a dict with one handler. Modules in
the current folder can be imported. Each run uses a new store in a temporary folder.

The agent's own tools are not called unless you pass --live; --fakes names functions that replace them, with the same
names. Model functions are called. With --recorded, models and tools are called in the first run only, and the other
runs replay their results.
"""

from __future__ import annotations

import json
import traceback
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.cli.application import load, load_tools
from holdfast.cli.exits import Exit
from holdfast.cli.output import write
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.testing.drill.child import place_of
from holdfast.testing.drill.spec import Drill
from holdfast.testing.drill.verbs import run_drill


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("app", metavar="APP", help="the agent, as module:attribute")
    parser.add_argument(
        "--start", metavar="JSON", type=_json, help="the start state of a run; required unless APP is a Drill"
    )
    parser.add_argument(
        "--tools", metavar="APP", help="the agent's tools, whose declarations are read: a list of functions"
    )
    parser.add_argument("--fakes", metavar="APP", help="functions to call instead of the tools: a list of functions")
    parser.add_argument("--live", action="store_true", help="call the agent's own tools, in every run")
    parser.add_argument("--recorded", action="store_true", help="call models and tools in the first run only")
    parser.add_argument(
        "--watch",
        metavar="PATH",
        action="append",
        help="a file or folder that must end with the same contents as without kills; may be repeated",
    )
    parser.add_argument(
        "--answers", metavar="JSON", type=_object, help="answers to run.wait: an object from name to answer"
    )
    parser.add_argument(
        "--points", metavar="N", type=_count, help="disturb at N evenly spread points (default: all kills)"
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=_seconds, help="time limit of one run (default: 60)")
    parser.add_argument("--json", action="store_true", help="write the report to stdout as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    report = run_drill(_drill(arguments))
    write(f"{report.json().decode() if arguments.json else report.table()}\n")
    return Exit.OK if report.passed else Exit.ERROR


def _drill(arguments: Namespace) -> Drill:
    """Return the drill that APP describes, with the options applied over it."""
    given: dict[str, Any] = {
        "start": arguments.start,
        "tools": None if arguments.tools is None else load_tools(arguments.tools),
        "fakes": None if arguments.fakes is None else load_tools(arguments.fakes),
        "live": arguments.live or None,
        "recorded": arguments.recorded or None,
        "watch": arguments.watch,
        "answers": arguments.answers,
        "points": arguments.points,
        "timeout": arguments.timeout,
    }
    said = {name: value for name, value in given.items() if value is not None}
    found = _found(arguments.app)
    if isinstance(found, Drill):
        return msgspec.structs.replace(found, **said)
    if isinstance(found, Mapping):
        if len(found) != 1:
            names = ", ".join(map(str, found)) or "none"
            raise InvalidArgument(f"{arguments.app} has the handlers {names}; name one of them, as module:function")
        found = next(iter(found.values()))
    if not callable(found) or isinstance(found, type):
        raise InvalidArgument(
            f"{arguments.app} is of type {type(found).__name__}; it must be a holdfast.testing.Drill or a handler"
        )
    if arguments.start is None:
        raise InvalidArgument(
            f"{arguments.app} is a handler, so the start state is missing; pass --start, or name a "
            "holdfast.testing.Drill"
        )
    return Drill(handler=found, **said)


def _found(named: str) -> Any:
    """Load APP. An invalid Drill in its module raises InvalidArgument, without a traceback."""
    try:
        return load(named)
    except HoldfastError as failure:
        cause = failure.__cause__
        if not isinstance(cause, InvalidArgument):
            raise
        place = place_of(traceback.TracebackException.from_exception(cause))
        raise InvalidArgument(f"{named}: {cause} (in {place})") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not JSON") from None


def _object(text: str) -> dict[str, Any]:
    found = _json(text)
    if not isinstance(found, dict):
        raise ArgumentTypeError(f"{text!r} is not a JSON object")
    return found


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
