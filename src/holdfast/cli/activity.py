"""Activity in a store: effects shows the journal, watch follows a thread, stats shows growth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from holdfast import inspect
from holdfast.cli.command import Output, count, limit, option, seconds, thread, verb
from holdfast.cli.layout import STATUSES, call_line, json_line, short_id, status_line
from holdfast.cli.look import newest
from holdfast.cli.terminal import Column, Exit, Show, fitted, joined, put, table, write
from holdfast.handle import Holdfast
from holdfast.text import age, counted, line, sized, span
from holdfast.types import Effect

if TYPE_CHECKING:
    from rich.text import Text

_ENDED: Final = ("completed", "halted", "failed", "dead")
_IDLE: Final = (*_ENDED, "idle", "released", "waiting", "in doubt", "interrupted")
_BAR: Final = 20  # characters


# -- watch -------------------------------------------------------------------------------------------------------------


@verb()
@thread("[THREAD]", "name")
@option("--interval SECONDS", "time between reads", seconds(0.01, 3600), 0.5)
@option("--until-idle", "also end when the run waits or is interrupted, and if there is none")
def watch(hf: Holdfast, as_json: bool, name: str | None, interval: float, until_idle: bool) -> Exit:
    """Follow a thread live: its checkpoints, calls and status changes as they are recorded, until its run ends.

    Without THREAD, the newest thread is followed. With --json each event is one line. Ctrl-C stops watching and does
    not affect the run. A run that waits or is interrupted, and a thread without a run, are followed until Ctrl-C; with
    --until-idle the command ends instead.
    """
    ends = _IDLE if until_idle else _ENDED
    follower = inspect.Follower(hf, newest(hf, name))
    while True:
        for event in follower.look():
            if as_json:
                write(f"{json.dumps(inspect.data_of(event))}\n")
            else:
                put(_event_line(event, has_run=follower.has_run))
        if follower.status in ends if follower.has_run else until_idle:
            return Exit.OK
        time.sleep(interval)


def _event_line(event: inspect.Event, *, has_run: bool) -> Text:
    moment = f"{datetime.now(UTC):%H:%M:%S}"
    if event.checkpoint is not None:
        found = event.checkpoint
        label = "" if found.label is None else f" [{line(found.label)}]"
        return fitted(moment, f" * step {found.step}{label}  {short_id(found)}  {sized(found.size)}")
    if event.call is not None:
        return fitted(moment, f"   {call_line(event.call, is_held=True)}")
    status = status_line(event.status or "", event.reason, has_run=has_run)
    return joined([moment, status])


# -- stats -------------------------------------------------------------------------------------------------------------


@verb(bar="threads")
@thread("[THREAD]", "name")
@option("--days N", "show the growth of the last N days", count(), 14)
def stats(hf: Holdfast, show: Show, name: str | None, days: int) -> Output:
    """Show the size of a store, its growth, and the size that full copies of the state at each checkpoint would take.

    Reads the metadata of every checkpoint, of the namespace or of one thread. It reads no states.
    """
    found = inspect.stats(hf, name, days=days, progress=lambda done: show("threads", done, None))
    return Output(found, _figures(found), lost=found.lost)


def _figures(found: inspect.Stats) -> Iterator[str]:
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
    Column("STATUS", style=STATUSES.get),
    Column("KEY", shrinks=True),
    Column("TOOK", is_right=True),
    Column("AGE", is_right=True),
    Column("NOTE", shrinks=True),
)


@verb(bar="reading")
@thread("[THREAD[@REF]]", "reference")
@option("--in-doubt", "show only calls in doubt")
@option("--full", "show arguments and results")
@option("--before N", "show only calls with a number below N", count(1))
@limit(100, "calls")
def effects(
    hf: Holdfast, show: Show, reference: str | None, limit: int, in_doubt: bool, full: bool, before: int | None
) -> Output:
    """Show the journal of a thread: every recorded call and its outcome, the newest first.

    Without THREAD, the newest thread is shown. THREAD@REF (see `holdfast show`) shows only the calls of the step that
    ended with this checkpoint. --in-doubt shows only calls that started but have no recorded outcome; `holdfast settle`
    records it. Exits with 5 if the thread has calls in doubt.
    """
    reference = newest(hf, reference)
    row, ref = inspect.split(hf, reference)
    journal, doubtful = inspect.CallHistory(hf, row.name), inspect.thread_line(hf, row).in_doubt
    numbers = None
    if ref != "@-1" or row.name != reference:
        numbers = {call.number for call in inspect.step_of(hf, inspect.find(hf, reference).checkpoint).calls}
    calls = journal.newest_first(before=before, numbers=numbers, progress=partial(show, "reading"))
    found = list(islice((each for each in calls if each.is_doubtful or not in_doubt), limit + 1 if limit else None))
    notes: list[str] = []
    if limit and len(found) > limit:
        found.pop()
        notes.append(f"more calls follow: pass --before {found[-1].call.number}, or --limit 0 for all")
    if any(each.is_doubtful for each in found):
        notes.append(f"{counted(doubtful, 'call')} in doubt: `holdfast inbox` shows how to settle it")
    if not found and not journal.lost:
        notes.append("no calls in doubt" if in_doubt else "no recorded calls")
    data = [{**inspect.data_of(each.effect), "in_doubt": each.is_doubtful} for each in found]
    return Output(
        {"thread": row.name, "in_doubt": doubtful, "effects": data},
        _effect_lines(found, full=full),
        notes,
        journal.lost,
        Exit.IN_DOUBT if doubtful else Exit.OK,
    )


def _effect_lines(found: list[inspect.RecordedCall], *, full: bool) -> Iterator[str | Text]:
    head, *rows = table(_EFFECTS, [_effect_row(each) for each in found])
    if found:
        yield head
    for shown, each in zip(rows, found, strict=True):
        yield shown
        yield from _payloads(each.effect) if full else ()


def _effect_row(found: inspect.RecordedCall) -> list[str]:
    call = found.call
    return [
        str(call.number),
        str(call.step),
        call.kind,
        line(call.name),
        found.status,
        line(found.own_key or ""),
        "" if call.seconds is None else span(call.seconds),
        age(call.started_at),
        "; ".join(filter(None, (f"by {line(call.by)}" if call.by else "", line(call.error or "")))),
    ]


def _payloads(effect: Effect) -> Iterator[Text]:
    for mark, value in (("      >", effect.arguments), ("      <", effect.result)):
        if value is not None:
            yield fitted(mark, json_line(value))
