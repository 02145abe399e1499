"""Changes of threads: fork, rewind, label, tag, prune, drop and erase."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import asdict

from holdfast.cli.command import (
    Consent,
    Output,
    argument,
    count,
    duration,
    option,
    thread,
    value_in,
    value_in_file,
    verb,
)
from holdfast.cli.layout import fields, status_text
from holdfast.cli.location import Location
from holdfast.cli.terminal import Exit, progress
from holdfast.errors import EffectsAhead, ErasePending, HoldfastError, InvalidArgument, LeaseHeld, NotFound
from holdfast.handle import Holdfast
from holdfast.inspect import Ahead, Commands, effects_ahead, existing, find, graph_actions, thread_line
from holdfast.inspect.graphs import is_graph
from holdfast.text import counted, line, quoted
from holdfast.threads import erase as erasure
from holdfast.threads.branches import named
from holdfast.threads.retention import Retention
from holdfast.types import Checkpoint, EraseResult, PruneResult

# -- fork and rewind ---------------------------------------------------------------------------------------------------


@verb()
@thread("THREAD[@REF]", "reference")
@argument("NAME")
@option("--state FILE", "start from the state in this JSON file; - reads stdin")
def fork(hf: Holdfast, location: Location, reference: str, name: str, state: str | None) -> Output:
    """Start a new thread NAME at a checkpoint of another: THREAD means its head, THREAD@REF any of its checkpoints.

    Nothing is copied, and the other thread is not changed. With --state the fork starts from an edited state; its
    parent is still the checkpoint. `holdfast resume APP NAME` runs the fork; it asks before irreversible calls.
    """
    found = find(hf, reference)
    edited = None if state is None else value_in_file(state, "the state")
    if edited is None and state is not None:
        raise InvalidArgument("the state is null; nothing was forked. Give a state other than null.")
    if edited is None and is_graph(hf, found.thread):
        graph_actions.fork(hf, found.checkpoint, name)
        first = hf.thread(name).head()
    else:
        first = hf.thread(found.thread).fork(name, at=found.checkpoint, state=edited).head()
    if first is None:
        raise HoldfastError(f"thread {quoted(name)} was forked, and then dropped by another process")
    is_run = hf.run_info(found.thread) is not None or is_graph(hf, found.thread)
    notes = [f"run the fork: {Commands(hf, location.default).resume(first.thread)}"] if is_run else []
    how = "" if state is None else ", with an edited state"
    told = f"{quoted(first.thread)} forked from {_checkpoint(found.checkpoint)} of {quoted(found.thread)}{how}"
    return Output({**_identity(first), "from": _identity(found.checkpoint)}, told, notes)


def _identity(checkpoint: Checkpoint) -> dict[str, Any]:
    return fields(checkpoint, "thread id seq step label tags")


def _checkpoint(checkpoint: Checkpoint) -> str:
    label = "" if checkpoint.label is None else f", {quoted(checkpoint.label)}"
    return f"{checkpoint.id} (step {checkpoint.step}{label})"


@verb()
@thread("THREAD@REF", "reference")
@option("--past-effects", "rewind even past effects that cannot be undone")
@option("--dry-run", "list the effects, and change nothing")
def rewind(hf: Holdfast, reference: str, past_effects: bool, dry_run: bool) -> Output:
    """Make an earlier checkpoint the head of its thread. Nothing is deleted: later checkpoints stay, as a branch.

    A rewind does not undo the effects of calls. The command lists the effects that were made after the checkpoint. If
    some cannot be undone, it changes nothing and exits with 4, unless you pass --past-effects.
    """
    found = find(hf, reference)
    if found.is_head and found.thread == reference:
        raise InvalidArgument(f"name the checkpoint to rewind to, like {found.thread}@-2")
    passed = effects_ahead(hf, found.thread, found.checkpoint)
    refused: EffectsAhead | None = None
    try:
        if not dry_run and is_graph(hf, found.thread):
            graph_actions.rewind(hf, found.checkpoint, past_effects=past_effects)
        elif not dry_run:
            hf.thread(found.thread).rewind(found.checkpoint, past_effects=past_effects)
    except EffectsAhead as error:
        refused = error
    is_done = refused is None and not dry_run
    lines = [_passed_line(each) for each in passed]
    if is_done:
        past = f", past {counted(len(passed), 'effect')}" if passed else ""
        lines.append(f"{quoted(found.thread)} rewound to {_checkpoint(found.checkpoint)}{past}")
    notes = ["no effects were made after this checkpoint"] if dry_run and not passed else []
    data = {**_identity(found.checkpoint), "done": is_done, "passed": passed}
    return Output(data, lines, notes, failure=refused)


def _passed_line(effect: Ahead) -> str:
    mark = "!" if effect.must_confirm else " "
    what = f"{line(effect.name)} ({effect.effect}, {effect.status.replace('_', ' ')})"
    return f"{mark} step {effect.step}  call {effect.number}  {what}  {quoted(effect.thread)}"


# -- label and tag -----------------------------------------------------------------------------------------------------


@verb()
@thread("THREAD[@REF]", "reference")
@argument("NAME")
def label(hf: Holdfast, reference: str, name: str) -> Output:
    """Give a checkpoint a label. THREAD@NAME then finds the checkpoint, and pruning keeps it.

    Checkpoints are immutable, so the label goes to a new checkpoint with the same state; no state is stored twice. If
    the checkpoint is the head, the new one becomes the head; otherwise the head does not change.

    On a thread with a run, only the head can be labelled, and only when the run is completed: a run reads its position
    from its checkpoints. Other checkpoints are refused with exit code 4; fork the thread there, and label the fork.
    """
    return _named(hf, reference, f"the label {quoted(name)}", label=name, tags=())


@verb()
@thread("THREAD[@REF]", "reference")
@argument("NAME")
def tag(hf: Holdfast, reference: str, name: str) -> Output:
    """Add a tag to the tags of a checkpoint.

    Checkpoints are immutable, so the tag goes to a new checkpoint with the same state. As with `holdfast label`, on a
    thread with a run only the head can be tagged, and only when the run is completed.
    """
    return _named(hf, reference, f"the tag {quoted(name)}", label=None, tags=(name,))


def _named(hf: Holdfast, reference: str, what: str, **given: Any) -> Output:
    found = find(hf, reference)
    made = named(hf.context, found.thread, found.checkpoint, **given)
    told = f"{_checkpoint(found.checkpoint)} of {quoted(found.thread)} has {what}, in the new checkpoint {made.id}"
    return Output({**_identity(made), "of": found.checkpoint.id}, told)


# -- prune, drop, erase ------------------------------------------------------------------------------------------------


@verb(asks=True)
@thread("[THREAD]...", "names")
@option("--prefix TEXT", "prune threads whose names start with this")
@option("--all", "prune all threads of the namespace", name="is_all")
@option("--keep-last N", "keep the newest N checkpoints of each thread", count())
@option("--older-than AGE", "delete only checkpoints older than this: 12h, 30d; 90 means 90s", duration)
def prune(
    location: Location,
    agreed: Consent,
    names: tuple[str, ...],
    prefix: str | None,
    is_all: bool,
    keep_last: int | None,
    older_than: float | None,
) -> Output:
    """Delete old checkpoints of threads, and the data that only they used, after showing the plan.

    A checkpoint is deleted if it is not among the newest --keep-last and is older than --older-than. The head, labelled
    checkpoints, the newest completed checkpoint, the starting points of forks and the checkpoint from which a run
    resumes are always kept.
    """
    if [bool(names), prefix is not None, is_all].count(True) != 1:
        raise InvalidArgument("choose threads in one way: name them, or pass --prefix or --all")
    if keep_last is None and older_than is None:
        raise InvalidArgument("choose what to delete: pass --keep-last N, --older-than AGE, or both")
    retention = Retention(keep_last=keep_last, older_than=older_than)
    with location.open_existing() as hf:
        chosen = [existing(hf, name).name for name in names] or [info.name for info in hf.threads(prefix=prefix)]
        found = [plan for plan in _prune(hf, chosen, retention, dry_run=True) if plan.removed]
        is_done = bool(found) and agreed.to(
            f"{quoted(each.thread)}: {len(each.removed)} of {counted(each.kept + len(each.removed), 'checkpoint')} "
            "to delete"
            for each in found
        )
        if is_done:
            found = _prune(hf, [plan.thread for plan in found], retention, dry_run=False)
    data = [{**fields(each, "thread kept"), "removed": [_gone(gone) for gone in each.removed]} for each in found]
    told = ["nothing to prune"] if not found else []
    if is_done:
        removed = sum(len(plan.removed) for plan in found)
        told = [f"{counted(removed, 'checkpoint')} deleted in {counted(len(found), 'thread')}"]
    code = Exit.OK if is_done or not found else agreed.refused
    return Output({"done": is_done or not found, "threads": data}, told, code=code)


def _gone(checkpoint: Checkpoint) -> dict[str, Any]:
    return fields(checkpoint, "id seq step")


def _prune(hf: Holdfast, names: list[str], retention: Retention, *, dry_run: bool) -> list[PruneResult]:
    found: list[PruneResult] = []
    what = "reading" if dry_run else "pruning"
    with progress(what) as show:
        for done, name in enumerate(names):
            show(what, done, len(names))
            with suppress(NotFound):  # dropped in the meantime
                found.append(hf.thread(name).prune(retention, dry_run=dry_run))
    return found


@verb(asks=True)
@thread("THREAD...", "names")
def drop(hf: Holdfast, agreed: Consent, names: tuple[str, ...]) -> Output:
    """Delete whole threads, with their runs and journals, after showing what would be deleted.

    Forks keep the data they share with a dropped thread. A thread whose run is active is refused. Deleted data can
    remain in the store's files; `holdfast erase` removes it there too.
    """
    rows = [existing(hf, name) for name in dict.fromkeys(names)]
    entries = [hf.context.store.last_entry(row.position.thread) for row in rows]
    plan: list[str] = []
    for row, number in zip(rows, entries, strict=True):
        found = thread_line(hf, row)
        calls = f", {counted(number, 'journal entry')}" if number else ""
        status = status_text(found.status, has_run=found.has_run)
        plan.append(f"{quoted(row.name)}: {counted(row.count, 'checkpoint')}{calls}, {status}")
    is_done = agreed.to(plan)
    if is_done:
        _drop(hf, [row.name for row in rows])
    data = [
        {"thread": row.name, "checkpoints": row.count, "entries": number, "status": row.summary.status}
        for row, number in zip(rows, entries, strict=True)
    ]
    told = [f"{counted(len(rows), 'thread')} dropped"] if is_done else []
    return Output({"done": is_done, "threads": data}, told, code=Exit.OK if is_done else agreed.refused)


def _drop(hf: Holdfast, names: list[str]) -> None:
    with progress("dropping") as show:
        for done, name in enumerate(names):
            show("dropping", done, len(names))
            try:
                hf.thread(name).drop()
            except LeaseHeld as error:
                told = f"{done} of {len(names)} threads were dropped; {quoted(name)} was not: {error}"
                raise LeaseHeld(told) from error


@verb(asks=True)
@thread("[THREAD]", "name")
@option(
    "--metadata NAME=JSON", "erase threads that have a checkpoint with this metadata; may be repeated", multiple=True
)
@option("--forks", "also erase their forks")
def erase(location: Location, agreed: Consent, name: str | None, metadata: tuple[str, ...], forks: bool) -> Output:
    """Delete a thread, or every thread that has a checkpoint with given metadata, and remove its data from the files.

    Threads of child runs are erased too, forks only with --forks. The plan is shown first: what is erased, what is
    kept, and where copies may remain. Exits with 1 if an open reader keeps the data in the files: close the reader, and
    run the command again.
    """
    if (name is None) == (not metadata):
        raise InvalidArgument(f"name a thread{' or pass --metadata, not both' if metadata else ', or pass --metadata'}")
    entries = dict(map(_metadata_entry, metadata)) if metadata else None
    pending: ErasePending | None = None
    with location.open_existing() as hf:
        if name is not None and not agreed.is_given:
            existing(hf, name)  # not with --yes, which may repeat an erase that was interrupted
        with progress("reading"):
            plan = erasure.plan(hf.context, name, entries, forks=forks)
        is_agreed = agreed.to([*(f"{quoted(each)} would be erased" for each in plan.threads), *_erased_lines(plan)])
        if is_agreed:
            try:
                with progress("erasing"):
                    plan = hf.erase(name, metadata=entries, forks=forks)
            except ErasePending as error:
                pending, plan = error, error.erased or plan
    is_done = is_agreed and pending is None
    data = {"done": is_done, "pending": pending is not None, **asdict(plan)}
    lines = [*_erased_lines(plan), f"{counted(len(plan.threads), 'thread')} erased"] if is_done else []
    if is_done and name is not None and not plan.threads:
        lines.append(f"there is no thread {quoted(name)}")  # erased before, or another name was meant
    return Output(data, lines, code=Exit.OK if is_agreed else agreed.refused, failure=pending)


def _erased_lines(plan: EraseResult) -> Iterator[str]:
    yield from (f"kept: {quoted(name)}, a fork; --forks erases it too" for name in plan.forks_left)
    if plan.blobs_kept:
        yield f"kept: {counted(len(plan.blobs_kept), 'blob')} that other threads use"
    yield from (f"may remain: {line(what)}" for what in plan.beyond)


def _metadata_entry(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidArgument(f'{text!r} is not NAME=JSON, like user="ann"')
    return name, value_in(value, f"metadata {name!r}")
