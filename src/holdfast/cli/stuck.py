"""List the runs that have made no progress for a while, the oldest first, with the likely reason."""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser, Namespace

from holdfast.cli.amounts import age
from holdfast.cli.bar import bar
from holdfast.cli.durations import seconds
from holdfast.cli.findings import put, put_json
from holdfast.cli.losses import tell_lost
from holdfast.cli.paint import STANDINGS, columns, painted
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.cli.wording import worded
from holdfast.looking.attention import stuck_for
from holdfast.looking.data import data_of
from holdfast.looking.printable import line

_WIDEST = 120


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument(
        "--older", metavar="AGE", type=seconds, default=300.0, help="without progress for at least this (default: 5m)"
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the runs as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("reading"):
        found, lost = stuck_for(hf, arguments.older)
    if arguments.json:
        put_json({"stuck": [data_of(each) for each in found]})
    else:
        for one in found:
            status = painted(one.status, STANDINGS.get(one.status))
            put(f"{painted(line(one.thread), 'bold')}  {status}, for {age(one.since)}")
            for each in textwrap.wrap(line(worded(one.why)), max(min(columns(), _WIDEST) - 2, 20)):
                put(f"  {each}")
    if not found and not lost:
        say("no stuck runs")
    return tell_lost(lost)
