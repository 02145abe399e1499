"""List the acts that calls have claimed: what may happen only once, which call has done it, and whether it is free.

Tools with `identity=` claim acts. TOOL is the declared name of a tool, or the qualified name of its function. An act
that is under way, in doubt or done is not done again; `holdfast release` lets it happen again.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from itertools import islice
from typing import Final

from holdfast.cli.amounts import age
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.paint import Colour, columns, cut, painted
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.cli.talks import in_a_line
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.types import Act

_MOST = 1000
_COLORS: Final[dict[str, Colour]] = {"done": "green", "in_doubt": "yellow", "under_way": "cyan", "deleted": "yellow"}


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("tool", metavar="TOOL", nargs="?", help="list only the acts of this tool")
    parser.add_argument("--limit", metavar="N", type=int, default=_MOST, help=f"at most this many (default: {_MOST})")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the acts as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        found = list(islice(hf.acts(arguments.tool), max(arguments.limit, 0) + 1))
    shown, is_cut = found[: arguments.limit], len(found) > arguments.limit
    if arguments.json:
        put_json({"acts": [data_of(each) for each in shown], "more": is_cut})
    else:
        for act in shown:
            _show(act)
    if not found:
        say("no acts are claimed")
    elif is_cut:
        say("there are more; pass --limit")
    return Exit.OK


def _show(act: Act) -> None:
    status = painted(act.status.replace("_", " "), _COLORS.get(act.status))
    when = "" if act.begun_at is None else f", {age(act.begun_at)} ago"
    call = "a deleted thread" if act.thread is None else f"{line(act.thread)} call {act.number}{when}"
    what = "an act" if act.tool is None else f"{painted(line(act.tool), 'bold')} {line(act.identity or '')}"
    put(f"{what}  {status}  {call}")
    if act.result is not None:
        put(f"  {cut(in_a_line(act.result), max(columns() - 2, 20))}")
    if act.by is not None:
        put(f"  released by {line(act.by)}: {line(act.reason or '')}")
    put(f"  {act.id}")
