"""Activity in a store: effects shows the journal, watch follows a thread, stats shows growth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.exits import Exit
from holdfast.cli.layout import json_line, status_line
from holdfast.cli.location import Location
from holdfast.cli.look import newest
from holdfast.cli.parameters import count, seconds, thread, verb
from holdfast.cli.terminal import (
    Column,
    Show,
    columns,
    joined,
    progress,
    put,
    put_json,
    report_lost,
    say,
    shortened,
    table,
    write,
)
from holdfast.handle import Holdfast
from holdfast.inspect.calls import effects as journal
from holdfast.inspect.calls import is_doubtful
from holdfast.inspect.data import data_of
from holdfast.inspect.following import Event, Follower
from holdfast.inspect.graphs import journal_of
from holdfast.inspect.nearest import existing
from holdfast.inspect.printable import line
from holdfast.inspect.references import find, split
from holdfast.inspect.stats import Stats
from holdfast.inspect.stats import stats as figures
from holdfast.inspect.threads import thread_line
from holdfast.inspect.timeline import step_of
from holdfast.inspect.whole import Lost, whole
from holdfast.runs.identity import own_key
from holdfast.text import age, sized, span
from holdfast.types import Effect

if TYPE_CHECKING:
    from rich.text import Text

_ALL: Final = 1 << 40
_PAGE: Final = 500
_SHORT: Final = 8  # the last characters of an id, as `log` shows them
_ENDED: Final = ("completed", "halted", "failed", "dead")
_IDLE: Final = (*_ENDED, "idle", "released", "waiting", "in doubt", "interrupted")
_BAR: Final = 20  # characters
_OUTCOMES: Final = {"in doubt": "yellow", "unstored": "yellow", "failed": "red", "begun": "cyan", "late": "dim"}


# -- watch -------------------------------------------------------------------------------------------------------------


@verb()
@thread("name", "[THREAD]", required=False)
@click.option(
    "--interval", metavar="SECONDS", type=seconds(0.01, 3600), default=0.5, help="time between reads (default: 0.5)"
)
@click.option("--until-idle", is_flag=True, help="also end when no process holds the run")
def watch(location: Location, as_json: bool, name: str | None, interval: float, until_idle: bool) -> Exit:
    """Follow a thread live: its checkpoints, calls and status changes as they are recorded, until its run ends.

    Without THREAD, the newest thread is followed. With --json each event is one line. Ctrl-C stops watching and does
    not affect the run. A run that waits or is interrupted, and a thread without a run, are followed until Ctrl-C; with
    --until-idle the command ends instead.
    """
    ends = _IDLE if until_idle else _ENDED
    with location.open_existing() as hf:
        follower = Follower(hf, newest(hf, name))
        while True:
            for event in follower.look():
                if as_json:
                    write(f"{json.dumps(data_of(event))}\n")
                else:
                    put(_event_line(event, has_run=follower.has_run), is_cut=event.standing is None)
            if follower.standing in ends if follower.has_run else until_idle:
                return Exit.OK
            until = time.monotonic() + interval
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))  # in short steps, so that Ctrl-C takes effect at once


def _event_line(event: Event, *, has_run: bool) -> Text:
    text: str | Text = ""
    if event.checkpoint is not None:
        found = event.checkpoint
        label = "" if found.label is None else f" [{line(found.label)}]"
        text = f"* step {found.step}{label}  {found.id[-_SHORT:]}  {sized(found.size)}"
    elif event.call is not None:
        call = event.call
        took = "" if call.seconds is None else f"  {span(call.seconds)}"
        error = "" if call.error is None else f": {line(call.error)}"
        text = f"  {call.kind} {line(call.name)}  {call.status.replace('_', ' ')}{took}{error}"
    elif event.standing is not None:
        text = status_line(event.standing, event.reason, has_run=has_run)
    return joined([f"{datetime.now(UTC):%H:%M:%S}", text])


# -- stats -------------------------------------------------------------------------------------------------------------


@verb()
@thread("name", "[THREAD]", required=False)
@click.option("--days", metavar="N", type=count(), default=14, help="show the growth of the last N days (default: 14)")
def stats(location: Location, as_json: bool, name: str | None, days: int) -> Exit:
    """Show the size of a store, its growth, and the size that full copies of the state at each checkpoint would take.

    Reads the metadata of every checkpoint, of the namespace or of one thread. It reads no states.
    """
    with location.open_existing() as hf, progress("threads") as report:

        def tell(done: int) -> None:
            if report is not None:
                report("threads", done, None)

        found = figures(hf, name, days=days, progress=tell)
    if as_json:
        put_json(data_of(found))
    else:
        for each in _figures(found):
            put(each)
    return report_lost(found.lost)


def _figures(found: Stats) -> Iterator[str]:
    yield f"threads      {found.threads:,}"
    yield f"checkpoints  {found.checkpoints:,}"
    if found.statuses:
        yield "threads by status of their last save (`holdfast threads` shows the status of runs):"
    for status, number in found.statuses.items():
        yield f"  {status:<11}{number:,}"
    yield f"newest       {sized(found.newest)}  (newest state of each thread)"
    yield f"full copies  {sized(found.copies)}  (a full copy of the state per checkpoint)"
    if found.stored is not None:
        yield f"on disk      {sized(found.stored)}  (the whole store, all namespaces)"
    if found.saved is not None:
        yield f"saved        {found.saved:g} times smaller" if found.saved >= 1 else "saved        nothing yet"
    if found.days:
        most = max(day.checkpoints for day in found.days)
        yield "day         checkpoints"
        for day in reversed(found.days):
            yield f"{day.day}  {day.checkpoints:>11,}  {'#' * max(1, round(_BAR * day.checkpoints / most))}"


# -- effects -----------------------------------------------------------------------------------------------------------

_EFFECTS: Final = (
    Column("NO", is_right=True),
    Column("STEP", is_right=True),
    Column("KIND"),
    Column("NAME", shrinks=True),
    Column("KEY", shrinks=True),
    Column("STATUS", style=_OUTCOMES.get),
    Column("TOOK", is_right=True),
    Column("AGE", is_right=True),
    Column("NOTE", shrinks=True),
)


@verb()
@thread("reference", "[THREAD[@REF]]", required=False)
@click.option("--in-doubt", is_flag=True, help="show only calls in doubt")
@click.option("--full", is_flag=True, help="show arguments and results")
@click.option("--before", metavar="N", type=count(1), help="show only calls with a number below N")
@click.option("--limit", metavar="N", type=count(), default=100, help="at most N calls (default: 100; 0: all)")
def effects(location: Location, as_json: bool, reference: str | None, limit: int, **given: Any) -> Exit:
    """Show the journal of a thread: every recorded call and its outcome, the newest first.

    Without THREAD, the newest thread is shown. THREAD@REF (see `holdfast show`) shows only the calls of the step that
    ended with this checkpoint. --in-doubt shows only calls that started but have no recorded outcome; `holdfast settle`
    records it. Exits with 5 if the thread has calls in doubt.
    """
    lost: Lost = {}
    with location.open_existing() as hf, progress("reading") as report:
        reference = newest(hf, reference)
        row, ref = split(hf, reference)
        standing = thread_line(hf, row)
        journal_thread = existing(hf, journal_of(hf, row.name))
        which = None
        if ref != "@-1" or row.name != reference:
            which = {call.number for call in step_of(hf, find(hf, reference).checkpoint).calls}
        found: list[Effect] = []
        is_cut = False
        for each in _calls(hf, journal_thread.position.thread, given["before"], which, lost, report):
            if given["in_doubt"] and not is_doubtful(each.effect, each.status, is_held=standing.standing == "running"):
                continue
            if len(found) == (limit or _ALL):
                is_cut = True
                break
            found.append(each)
    if as_json:
        put_json({"thread": row.name, "in_doubt": standing.in_doubt, "effects": [data_of(each) for each in found]})
    elif found:
        head, *rows = table(_EFFECTS, [_effect_row(each) for each in found])
        put(head)
        for shown, each in zip(rows, found, strict=True):
            put(shown)
            for text in _payloads(each) if given["full"] else ():
                put(text)
    if is_cut and not as_json:
        say(f"more calls follow: pass --before {found[-1].number}, or --limit 0 for all")
    if not found and not lost:
        say("no calls in doubt" if given["in_doubt"] else "no recorded calls")
    return report_lost(lost, Exit.IN_DOUBT if standing.in_doubt else Exit.OK)


def _calls(
    hf: Holdfast, number: int, before: int | None, which: set[int] | None, lost: Lost, report: Show | None
) -> Iterator[Effect]:
    """Yield the readable calls with a number below `before`, all or those in `which`, newest first."""
    store = whole(hf.context.store, lost)
    last = store.last_entry(number) if which is None else max(which, default=0)
    first = 1 if not which else min(which)
    end = last if before is None else min(last, before - 1)
    for high in range(end, first - 1, -_PAGE):
        low = max(high - _PAGE, first - 1)
        if report is not None:
            report("reading", end - high, end - first + 1)
        page = journal(store, number, after=low, limit=high - low)
        yield from (each for each in reversed(page) if which is None or each.number in which)


def _effect_row(effect: Effect) -> list[str]:
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
        "; ".join(filter(None, (f"by {line(effect.by)}" if effect.by else "", line(effect.error or "")))),
    ]


def _payloads(effect: Effect) -> list[str]:
    width = max(columns() - 8, 20)
    given = [] if effect.arguments is None else [f"      > {shortened(json_line(effect.arguments), width)}"]
    return given if effect.result is None else [*given, f"      < {shortened(json_line(effect.result), width)}"]
