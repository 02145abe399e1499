"""Show the journal of a thread: every recorded call and its outcome, oldest first.

THREAD@REF (see `holdfast show`) shows only the calls of the step that ended with this checkpoint. --in-doubt shows
only calls that started but have no recorded outcome; `holdfast settle` records it. Exits with 5 if the thread has calls
in doubt. --full shows arguments and results.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from holdfast.cli.amounts import age, span
from holdfast.cli.bar import Show, bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.losses import tell_lost
from holdfast.cli.numbers import count
from holdfast.cli.paint import Colour, columns, cut
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.table import Column, table
from holdfast.cli.talk import say
from holdfast.cli.talks import in_a_line
from holdfast.handle import Holdfast
from holdfast.looking.calls import DOUBTFUL, effects
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.looking.references import find, split
from holdfast.looking.threads import thread_line
from holdfast.looking.timeline import step_of
from holdfast.looking.whole import Lost, whole
from holdfast.runs.identity import own_key
from holdfast.types import Effect

_ACTING = ("idempotent", "irreversible")
_PAGE = 500
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
    parser.add_argument("thread", metavar="THREAD[@REF]", help="the thread, or one of its checkpoints")
    parser.add_argument("--in-doubt", action="store_true", help="show only calls in doubt")
    parser.add_argument("--full", action="store_true", help="show arguments and results")
    parser.add_argument("--after", metavar="N", type=count, default=0, help="show only calls with a number above N")
    parser.add_argument("--limit", metavar="N", type=count, default=0, help="show at most N calls (default: all)")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the calls as JSON, with arguments and results")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    lost: Lost = {}
    with open_existing(arguments) as hf, bar("reading") as show:
        row, ref = split(hf, arguments.thread)
        standing = thread_line(hf, row)
        is_held = standing.standing == "running"
        which = None if ref == "@-1" and row.name == arguments.thread else _numbers(hf, arguments.thread)
        found: list[Effect] = []
        most = arguments.limit or 1 << 40
        for each in _journal(hf, row.position.thread, arguments.after, which, lost, show):
            if arguments.in_doubt and not is_doubtful(each, is_held=is_held):
                continue
            if len(found) == most:
                break
            found.append(each)
    if arguments.json:
        put_json({"thread": row.name, "in_doubt": standing.in_doubt, "effects": [data_of(each) for each in found]})
    elif found:
        for at, shown in enumerate(table(_COLUMNS, [_row(effect) for effect in found])):
            put(shown)
            if arguments.full and at:
                for text in _payloads(found[at - 1]):
                    put(text)
    if not found and not lost:
        say("no calls in doubt" if arguments.in_doubt else "no recorded calls")
    return tell_lost(lost, Exit.IN_DOUBT if standing.in_doubt else Exit.OK)


def _numbers(hf: Holdfast, reference: str) -> set[int]:
    """Return the numbers of the calls in the step that ended with a checkpoint."""
    return {call.number for call in step_of(hf, find(hf, reference).checkpoint).calls}


def _journal(
    hf: Holdfast, thread: int, after: int, which: set[int] | None, lost: Lost, show: Show | None
) -> Iterator[Effect]:
    """Yield the readable calls with a number above `after`, all or those in `which`."""
    store = whole(hf.context.store, lost)
    last = store.last_entry(thread) if which is None else max(which, default=0)
    after = after if not which else max(after, min(which) - 1)
    for begin in range(after, last, _PAGE):
        if show is not None:
            show("reading", begin, last)
        page = effects(store, thread, after=begin, limit=min(_PAGE, last - begin))
        yield from (each for each in page if which is None or each.number in which)


def is_doubtful(effect: Effect, *, is_held: bool) -> bool:
    """Whether the outcome of a call is unknown. In a run that a process holds, a started call is still running."""
    return effect.effect in _ACTING and effect.status in DOUBTFUL and not (is_held and effect.status == "begun")


def _row(effect: Effect) -> list[str]:
    took = "" if effect.ended_at is None else span((effect.ended_at - effect.begun_at).total_seconds())
    return [
        str(effect.number),
        str(effect.step),
        effect.effect,
        line(effect.name),
        line(own_key(effect.key) or ""),
        effect.status.replace("_", " "),
        took,
        age(effect.begun_at),
        line(effect.error or "") or ("" if effect.by is None else f"by {line(effect.by)}"),
    ]


def _payloads(effect: Effect) -> list[str]:
    width = max(columns() - 8, 20)
    given = [] if effect.arguments is None else [f"      > {cut(in_a_line(effect.arguments), width)}"]
    return given if effect.result is None else [*given, f"      < {cut(in_a_line(effect.result), width)}"]
