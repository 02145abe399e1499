"""Follow a thread live: its checkpoints, calls and status changes as they are recorded, until its run ends.

With --json each event is one line. Ctrl-C stops watching and does not affect the run. A run that waits or is
interrupted, and a thread without a run, are followed until Ctrl-C; with --until-idle the command ends instead.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from datetime import UTC, datetime

from holdfast.cli.amounts import sized, span
from holdfast.cli.exits import Exit
from holdfast.cli.output import write
from holdfast.cli.paint import columns, cut, painted
from holdfast.cli.standing import colour_of, stands
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.wording import worded
from holdfast.looking.calls import Call
from holdfast.looking.data import data_of
from holdfast.looking.following import Event, Follower
from holdfast.looking.printable import line

_ENDED = ("completed", "halted", "failed", "dead")
_IDLE = (*_ENDED, "idle", "released", "waiting", "in doubt", "interrupted")
_STEP = 0.1  # sleep in short steps, so that Ctrl-C takes effect at once


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", help="the thread")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=_seconds, default=0.5, help="time between two reads (default: 0.5)"
    )
    parser.add_argument("--until-idle", action="store_true", help="also end when no process holds the run")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write each event as a line of JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    ends = _IDLE if arguments.until_idle else _ENDED
    with open_existing(arguments) as hf:
        follower = Follower(hf, arguments.thread)
        while True:
            for event in follower.look():
                if arguments.json:
                    write(f"{json.dumps(data_of(event))}\n")
                else:
                    for each in _lines(event, has_run=follower.has_run):
                        write(f"{each}\n")
            is_over = follower.standing in ends if follower.has_run else arguments.until_idle
            if is_over:
                return Exit.OK
            _sleep(arguments.interval)


def _sleep(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _STEP))


def _lines(event: Event, *, has_run: bool) -> Iterator[str]:
    at = f"{datetime.now(UTC):%H:%M:%S}"
    if event.checkpoint is not None:
        found = event.checkpoint
        label = "" if found.label is None else f" [{line(found.label)}]"
        yield f"{at}  * step {found.step}{label}  {found.id[-8:]}  {sized(found.size)}"
    elif event.call is not None:
        yield cut(f"{at}    {_call(event.call)}", columns())
    elif event.standing is not None:
        reason = "" if event.reason is None else f": {line(event.reason.removeprefix(f'{event.standing}: '))}"
        said = stands(event.standing, has_run=has_run)
        yield f"{at}  {painted(said, colour_of(said))}{worded(reason)}"


def _call(call: Call) -> str:
    took = "" if call.seconds is None else f"  {span(call.seconds)}"
    error = "" if call.error is None else f": {line(call.error)}"
    return f"{call.kind} {line(call.name)}  {call.status.replace('_', ' ')}{took}{error}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.01 <= seconds <= 3600:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.01 to 3600")
    return seconds
