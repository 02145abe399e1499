"""Show the journal of a thread: every call that was recorded, oldest first, and what became of it.

--in-doubt shows only calls that were begun and whose outcome nobody recorded; `holdfast settle` decides them. Ends
with 5 if there are some. --full shows arguments and results.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from holdfast.cli.amounts import age, span
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.numbers import count
from holdfast.cli.paint import Colour, columns, cut
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.table import Column, table
from holdfast.cli.talk import say
from holdfast.looking.calls import DOUBTFUL, effects
from holdfast.looking.data import data_of
from holdfast.looking.nearest import existing
from holdfast.looking.printable import line
from holdfast.looking.threads import thread_line
from holdfast.records import Effect

_ACTING = ("idempotent", "irreversible")


_COLOURS: dict[str, Colour] = {
    "in doubt": "yellow",
    "unstored": "yellow",
    "failed": "red",
    "begun": "cyan",
    "late": "dim",
    "given up": "dim",
}
_COLUMNS = (
    Column("NO", is_right=True),
    Column("STEP", is_right=True),
    Column("KIND"),
    Column("NAME", shrinks=True),
    Column("KEY", shrinks=True),
    Column("STATUS", colour=_COLOURS.get),
    Column("TOOK", is_right=True),
    Column("AGE", is_right=True),
    Column("ERROR", shrinks=True),
)


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", help="whose journal")
    parser.add_argument("--in-doubt", action="store_true", help="only calls in doubt")
    parser.add_argument("--full", action="store_true", help="with arguments and results")
    parser.add_argument("--after", metavar="N", type=count, default=0, help="only those with a higher number")
    parser.add_argument("--limit", metavar="N", type=count, default=0, help="at most so many; by default all")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write them as JSON, with arguments and results")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        row = existing(hf, arguments.thread)
        standing = thread_line(hf, row)
        is_held = standing.standing == "running"
        found: list[Effect] = []
        after, most = arguments.after, arguments.limit or 1 << 40
        while len(found) < most and (
            page := effects(hf._session.store, row.position.thread, after=after, limit=min(most - len(found), 500))
        ):
            after = page[-1].number
            found += [each for each in page if not arguments.in_doubt or is_doubtful(each, is_held=is_held)]
    if arguments.json:
        put_json({"thread": row.name, "in_doubt": standing.in_doubt, "effects": [data_of(each) for each in found]})
    elif found:
        for at, each in enumerate(table(_COLUMNS, [_row(effect) for effect in found])):
            put(each)
            if arguments.full and at:
                for text in _payloads(found[at - 1]):
                    put(text)
    if not found:
        say("no calls in doubt" if arguments.in_doubt else "no calls were recorded")
    return Exit.IN_DOUBT if standing.in_doubt else Exit.OK


def is_doubtful(effect: Effect, *, is_held: bool) -> bool:
    """Whether nobody knows what became of a call; in a run that somebody holds, what is begun is under way."""
    return effect.effect in _ACTING and effect.status in DOUBTFUL and not (is_held and effect.status == "begun")


def _row(effect: Effect) -> list[str]:
    took = "" if effect.ended_at is None else span((effect.ended_at - effect.begun_at).total_seconds())
    return [
        str(effect.number),
        str(effect.step),
        effect.effect,
        line(effect.name),
        line(effect.key.removeprefix(f"{effect.name}/")),
        effect.status.replace("_", " "),
        took,
        age(effect.begun_at),
        line(effect.error or "") or ("" if effect.by is None else f"by {line(effect.by)}"),
    ]


def _payloads(effect: Effect) -> list[str]:
    width = max(columns() - 8, 20)
    given = [] if effect.arguments is None else [f"      > {cut(_text(effect.arguments), width)}"]
    return given if effect.result is None else [*given, f"      < {cut(_text(effect.result), width)}"]


def _text(value: Any) -> str:
    return line(json.dumps(data_of(value), ensure_ascii=False))
