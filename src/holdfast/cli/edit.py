"""Changing threads: fork, rewind, label, tag, prune, drop and erase."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.layout import checkpoint_data, checkpoint_text, status_text
from holdfast.cli.location import Location
from holdfast.cli.parameters import Consent, consent, count, duration, thread, value_in, value_in_file, verb
from holdfast.cli.terminal import Exit, Show, emit, progress, put, put_json, say, worded
from holdfast.errors import EffectsAhead, ErasePending, HoldfastError, InvalidArgument, LeaseHeld, NotFound, Protected
from holdfast.handle import Holdfast
from holdfast.inspect import Ahead, data_of, effects_ahead, existing, find, graph_actions, thread_line
from holdfast.inspect.graphs import is_graph
from holdfast.text import counted, line, quoted
from holdfast.threads import erase as erasure
from holdfast.threads.branches import named
from holdfast.threads.retention import Retention
from holdfast.types import EraseResult, PruneResult

# -- fork and rewind ---------------------------------------------------------------------------------------------------


@verb()
@thread("reference", "THREAD[@REF]")
@click.argument("name", metavar="NAME")
@click.option("--state", metavar="FILE", help="start from the state in this JSON file; - reads stdin")
def fork(location: Location, as_json: bool, reference: str, name: str, state: str | None) -> Exit:
    """Start a new thread NAME at a checkpoint of another: THREAD means its head, THREAD@REF any of its checkpoints.

    Nothing is copied, and the other thread is not changed. With --state the fork starts from an edited state; its
    parent is still the checkpoint. `holdfast resume APP NAME` runs the fork; it asks before irreversible calls.
    """
    with location.open_existing() as hf:
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
    how = "" if state is None else ", with an edited state"
    told = f"{quoted(first.thread)} forked from {checkpoint_text(found.checkpoint)} of {quoted(found.thread)}{how}"
    emit(as_json, {**checkpoint_data(first), "from": checkpoint_data(found.checkpoint)}, [told])
    return Exit.OK


@verb()
@thread("reference", "THREAD@REF")
@click.option("--past-effects", is_flag=True, help="rewind even past effects that cannot be undone")
@click.option("--dry-run", is_flag=True, help="list the effects, and change nothing")
def rewind(location: Location, as_json: bool, reference: str, past_effects: bool, dry_run: bool) -> Exit:
    """Make an earlier checkpoint the head of its thread. Nothing is deleted: later checkpoints stay, as a branch.

    A rewind does not undo the effects of calls. The command lists the effects that were made after the checkpoint. If
    some cannot be undone, it changes nothing and exits with 4, unless you pass --past-effects.
    """
    with location.open_existing() as hf:
        found = find(hf, reference)
        if found.is_head and found.thread == reference:
            raise InvalidArgument(f"name the checkpoint to rewind to, like {found.thread}@-2")
        passed = effects_ahead(hf, found.thread, found.checkpoint)
        refused: EffectsAhead | None = None
        if not dry_run:
            try:
                if is_graph(hf, found.thread):
                    graph_actions.rewind(hf, found.checkpoint, past_effects=past_effects)
                else:
                    hf.thread(found.thread).rewind(found.checkpoint, past_effects=past_effects)
            except EffectsAhead as error:
                refused = error
    is_done = refused is None and not dry_run
    lines = [_passed_line(each) for each in passed]
    if is_done:
        past = f", past {counted(len(passed), 'effect')}" if passed else ""
        lines.append(f"{quoted(found.thread)} rewound to {checkpoint_text(found.checkpoint)}{past}")
    emit(as_json, {**checkpoint_data(found.checkpoint), "done": is_done, "passed": data_of(passed)}, lines)
    if dry_run and not passed and not as_json:
        say("no effects were made after this checkpoint")
    if refused is not None:
        say(f"holdfast rewind: {worded(str(refused))}")
        return Exit.CONFLICT
    return Exit.OK


def _passed_line(effect: Ahead) -> str:
    mark = "!" if effect.must_confirm else " "
    what = f"{line(effect.name)} ({effect.effect}, {effect.status.replace('_', ' ')})"
    return f"{mark} step {effect.step}  effect {effect.number}  {what}  {quoted(effect.thread)}"


# -- label and tag -----------------------------------------------------------------------------------------------------


@verb()
@thread("reference", "THREAD[@REF]")
@click.argument("name", metavar="NAME")
def label(location: Location, as_json: bool, reference: str, name: str) -> Exit:
    """Give a checkpoint a label. THREAD@NAME then finds the checkpoint, and pruning keeps it.

    Checkpoints are immutable, so the label goes to a new checkpoint with the same state; no state is stored twice. If
    the checkpoint is the head, the new one becomes the head; otherwise the head does not change.

    On a thread with a run, only the head can be labelled, and only when the run is completed: a run reads its position
    from its checkpoints. Other checkpoints are refused with exit code 4; fork the thread there, and label the fork.
    """
    return _put_name(location, reference, name, is_label=True, as_json=as_json)


@verb()
@thread("reference", "THREAD[@REF]")
@click.argument("name", metavar="NAME")
def tag(location: Location, as_json: bool, reference: str, name: str) -> Exit:
    """Add a tag to the tags of a checkpoint.

    Checkpoints are immutable, so the tag goes to a new checkpoint with the same state. As with `holdfast label`, on a
    thread with a run only the head can be tagged, and only when the run is completed.
    """
    return _put_name(location, reference, name, is_label=False, as_json=as_json)


def _put_name(location: Location, reference: str, name: str, *, is_label: bool, as_json: bool) -> Exit:
    with location.open_existing() as hf:
        found = find(hf, reference)
        given: dict[str, Any] = {"label": name, "tags": ()} if is_label else {"label": None, "tags": (name,)}
        made = named(hf.context, found.thread, found.checkpoint, **given)
    what = f"the {'label' if is_label else 'tag'} {quoted(name)}"
    where = f"{checkpoint_text(found.checkpoint)} of {quoted(found.thread)}"
    told = f"{where} has {what}, in the new checkpoint {made.id}"
    emit(as_json, {**checkpoint_data(made), "of": found.checkpoint.id}, [told])
    return Exit.OK


# -- prune, drop, erase ------------------------------------------------------------------------------------------------


@verb()
@thread("names", "[THREAD]...", nargs=-1)
@click.option("--prefix", metavar="TEXT", help="prune threads whose names start with this")
@click.option("--all", "is_all", is_flag=True, help="prune all threads of the namespace")
@click.option("--keep-last", metavar="N", type=count(), help="keep the newest N checkpoints of each thread")
@click.option("--older-than", metavar="AGE", type=duration, help="delete only checkpoints older than this: 12h, 30d")
@consent
def prune(
    location: Location,
    as_json: bool,
    names: tuple[str, ...],
    prefix: str | None,
    is_all: bool,
    keep_last: int | None,
    older_than: float | None,
    **given: bool,
) -> Exit:
    """Delete old checkpoints of threads, and the data that only they used, after showing the plan.

    A checkpoint is deleted if it is not among the newest --keep-last and is older than --older-than. The head, labelled
    checkpoints, the newest completed checkpoint and the starting points of forks are always kept.
    """
    agreed = Consent(**given, as_json=as_json)
    if [bool(names), prefix is not None, is_all].count(True) != 1:
        raise InvalidArgument("choose threads in one way: name them, or pass --prefix or --all")
    if keep_last is None and older_than is None:
        raise InvalidArgument("choose what to delete: pass --keep-last N, --older-than AGE, or both")
    retention = Retention(keep_last=keep_last, older_than=older_than)
    with location.open_existing() as hf:
        chosen = [existing(hf, name).name for name in names] or [info.name for info in hf.threads(prefix=prefix)]
        with progress("reading") as show:
            planned = [plan for plan in _prune(hf, chosen, retention, show, dry_run=True) if plan.removed]
        if not as_json:
            for plan in planned:
                of = counted(plan.kept + len(plan.removed), "checkpoint")
                put(f"{quoted(plan.thread)}: {len(plan.removed)} of {of} to delete")
        is_done = bool(planned) and agreed.ask()
        if is_done:
            with progress("pruning") as show:
                planned = _prune(hf, [plan.thread for plan in planned], retention, show, dry_run=False)
    if as_json:
        put_json({"done": is_done or not planned, "threads": [_prune_data(plan) for plan in planned]})
    elif not planned:
        put("nothing to prune")
    elif is_done:
        removed = sum(len(plan.removed) for plan in planned)
        put(f"{counted(removed, 'checkpoint')} deleted in {counted(len(planned), 'thread')}")
    return Exit.OK if is_done or not planned else agreed.refused


def _prune(
    hf: Holdfast, names: list[str], retention: Retention, show: Show | None, *, dry_run: bool
) -> list[PruneResult]:
    found: list[PruneResult] = []
    for done, name in enumerate(names):
        if show is not None:
            show("reading" if dry_run else "pruning", done, len(names))
        try:
            found.append(hf.thread(name).prune(retention, dry_run=dry_run))
        except (NotFound, Protected):
            continue  # dropped, or rewound to a checkpoint of the plan, in the meantime
    return found


def _prune_data(plan: PruneResult) -> dict[str, Any]:
    gone = [{"id": each.id, "seq": each.seq, "step": each.step} for each in plan.removed]
    return {"thread": plan.thread, "kept": plan.kept, "removed": gone}


@verb()
@thread("names", "THREAD...", nargs=-1, required=True)
@consent
def drop(location: Location, as_json: bool, names: tuple[str, ...], **given: bool) -> Exit:
    """Delete whole threads, with their runs and journals, after showing what would be deleted.

    Forks keep the data they share with a dropped thread. A thread whose run is active is refused. Deleted data can
    remain in the store's files; `holdfast erase` removes it there too.
    """
    agreed = Consent(**given, as_json=as_json)
    with location.open_existing() as hf:
        rows = [existing(hf, name) for name in dict.fromkeys(names)]
        entries = [hf.context.store.last_entry(row.position.thread) for row in rows]
        if not as_json:
            for row, number in zip(rows, entries, strict=True):
                calls = f", {counted(number, 'journal entry')}" if number else ""
                found = thread_line(hf, row)
                status = status_text(found.status, has_run=found.has_run)
                put(f"{quoted(row.name)}: {counted(row.count, 'checkpoint')}{calls}, {status}")
        is_done = agreed.ask()
        if is_done:
            with progress("dropping") as show:
                _drop(hf, [row.name for row in rows], show)
    if as_json:
        gone = [
            {"thread": row.name, "checkpoints": row.count, "entries": number, "status": row.summary.status}
            for row, number in zip(rows, entries, strict=True)
        ]
        put_json({"done": is_done, "threads": gone})
    elif is_done:
        put(f"{counted(len(rows), 'thread')} dropped")
    return Exit.OK if is_done else agreed.refused


def _drop(hf: Holdfast, names: list[str], show: Show | None) -> None:
    for done, name in enumerate(names):
        if show is not None:
            show("dropping", done, len(names))
        try:
            hf.thread(name).drop()
        except LeaseHeld as error:
            raise LeaseHeld(f"{done} of {len(names)} threads were dropped; {quoted(name)} was not: {error}") from error


@verb()
@thread("name", "[THREAD]", required=False)
@click.option(
    "--metadata",
    metavar="NAME=JSON",
    multiple=True,
    help="erase threads that have a checkpoint with this metadata; may be repeated",
)
@click.option("--forks", is_flag=True, help="also erase their forks")
@consent
def erase(
    location: Location, as_json: bool, name: str | None, metadata: tuple[str, ...], forks: bool, **given: bool
) -> Exit:
    """Delete a thread, or every thread that has a checkpoint with given metadata, and remove its data from the files.

    Threads of child runs are erased too, forks only with --forks. The plan is shown first: what is erased, what is
    kept, and where copies may remain. Exits with 1 if an open reader keeps the data in the files: close the reader, and
    run the command again.
    """
    agreed = Consent(**given, as_json=as_json)
    if (name is None) == (not metadata):
        raise InvalidArgument("name a thread or pass --metadata, not both")
    entries = dict(map(_metadata_entry, metadata)) if metadata else None
    is_pending = is_done = False
    with location.open_existing() as hf:
        if name is not None and not agreed.is_given:
            existing(hf, name)  # not with --yes, which may repeat an erase that was interrupted
        with progress("reading"):
            plan = erasure.plan(hf.context, name, entries, forks=forks)
        if not as_json:
            for each in plan.threads:
                put(f"{quoted(each)} would be erased")
            _put_erased(plan)
        if agreed.ask():
            try:
                with progress("erasing"):
                    plan = hf.erase(name, metadata=entries, forks=forks)
                is_done = True
            except ErasePending as pending:
                is_pending, plan = True, pending.erased or plan
                say(f"holdfast erase: {worded(str(pending))}")
    if as_json:
        lists = {key: list(getattr(plan, key)) for key in ("threads", "forks_left", "values_kept", "beyond")}
        put_json({"done": is_done, "pending": is_pending, **lists})
    elif is_done:
        _put_erased(plan)
        put(f"{counted(len(plan.threads), 'thread')} erased")
    if is_pending:
        return Exit.ERROR
    return Exit.OK if is_done else agreed.refused


def _put_erased(plan: EraseResult) -> None:
    for name in plan.forks_left:
        put(f"kept: {quoted(name)}, a fork; --forks erases it too")
    if plan.values_kept:
        put(f"kept: {counted(len(plan.values_kept), 'blob')} that other threads use")
    for what in plan.beyond:
        put(f"may remain: {line(what)}")


def _metadata_entry(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidArgument(f'{text!r} is not NAME=JSON, like user="ann"')
    return name, value_in(value, f"metadata {name!r}")
