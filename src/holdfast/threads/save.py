"""Save a state: the request, the commit made of it, and the compare-and-set on the thread's head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, TypeAlias, Unpack, final

import msgspec
from msgspec.structs import replace

from holdfast.codec.typed import StateType
from holdfast.delta.base import FREE_SIZE, Base, repeats
from holdfast.delta.change import changed
from holdfast.delta.draft import Draft, Skeleton
from holdfast.delta.load import load_base, state_of
from holdfast.delta.parts import Map, Part, refs_of
from holdfast.errors import (
    AlreadyExists,
    Conflict,
    Damaged,
    EffectsAhead,
    InvalidArgument,
    JournalAhead,
    LeaseHeld,
    NotFound,
    OutcomeUnknown,
    TooLarge,
)
from holdfast.ids import SEQ_MAX, new_id, to_text
from holdfast.observer import Observer
from holdfast.stores.contract import (
    Append,
    Blob,
    CheckpointRow,
    Commit,
    Hashing,
    Head,
    Position,
    Refs,
    Summary,
)
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.context import MAX_RETRIES, UNOBSERVED, Context
from holdfast.threads.effects import require_none_open
from holdfast.threads.metadata import Details, Meta, Parent, SaveOptions, SeenHead, checked_details
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.types import Checkpoint

_encode_skeleton = msgspec.msgpack.Encoder().encode

# -- the request ------------------------------------------------------------------------------------------------------


@final
class Expectation:
    """A value for `expect=` that is not a checkpoint id."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"holdfast.{self._name}"


NEW: Final = Expectation("NEW")
"""Expect that the thread does not exist yet."""
ANY: Final = Expectation("ANY")
"""Expect nothing: save on top of the current head."""

Expect: TypeAlias = str | Checkpoint | Expectation | None

# The triggers of the checkpoints of runs and forks. A run knows its own checkpoints by them, so other saves cannot use
# them. After a checkpoint with another trigger, a run closes its journal.
RUN_TRIGGERS: Final = ("start", "submit", "step", "save", "finish", "fork")


class SaveRequest(msgspec.Struct, frozen=True):
    """A save to be made: the state as plain values, redacted, and the details."""

    state: Any
    details: Details


# -- the commit -------------------------------------------------------------------------------------------------------


class Save(msgspec.Struct, frozen=True):
    """A commit ready to be stored, its metadata, and the parts of its state."""

    commit: Commit
    meta: Meta
    draft: Draft
    root: Part


def save_of(
    name: str,
    state: Any,
    details: Details,
    *,
    expect: Position | None,
    parent: Parent | None,
    base: Base | None,
    size_limit: int,
    hashing: Hashing,
) -> Save:
    """Lay out the save of a plain state. It stores what `base` does not have.

    Raises Unsupported or TooLarge for a state that cannot be stored.
    """
    linear = base is not None and expect is not None and base.seq == expect.last
    seq = 1 if expect is None else expect.last + 1
    draft = Draft(seq, base, linear=linear, hashing=hashing)
    root = changed(state, None if base is None else base.root, draft)
    if root.size > FREE_SIZE and repeats(root):
        draft = Draft(seq, base, linear=linear, hashing=hashing, shares=False)
        root = changed(state, None, draft)
    if root.size > size_limit:
        raise TooLarge(
            f"the state takes {root.size} bytes and the limit is {size_limit}; nothing was saved. "
            "Keep less in it, or open the store with a larger max_state_bytes."
        )
    refs = root.refs if isinstance(root, Map) else refs_of((root,))
    skeleton, appends = draft.finish(root)
    blobs = tuple(draft.blobs.values())
    commit, meta = commit_of(
        name, details, skeleton, refs, hashing, expect=expect, parent=parent, appends=appends, blobs=blobs
    )
    return Save(commit, meta, draft, root)


def commit_of(
    name: str,
    details: Details,
    skeleton: Skeleton,
    refs: Refs,
    hashing: Hashing,
    *,
    expect: Position | None,
    parent: Parent | None,
    appends: tuple[Append, ...] = (),
    blobs: tuple[Blob, ...] = (),
) -> tuple[Commit, Meta]:
    """The commit of a checkpoint under `parent`, and its metadata."""
    seq, move, step = 1, 1, details.step
    if expect is not None:
        if expect.last >= SEQ_MAX:
            raise InvalidArgument(
                f"a thread holds at most {SEQ_MAX} checkpoints; nothing was saved. Fork the thread to continue."
            )
        seq, move = expect.last + 1, expect.move + 1
    if parent is None:
        meta = replace(details.meta, size=skeleton.size, parent=None, parent_digest=b"", parent_write_micros=0)
        step = 1 if step is None else step
    else:
        version = details.meta.schema_version
        meta = replace(
            details.meta,
            size=skeleton.size,
            parent=parent.id,
            parent_digest=parent.digest if parent.thread or not parent.readable else b"",
            parent_write_micros=parent.write_micros,
            schema_version=parent.schema_version if version is None else version,
        )
        step = parent.step + 1 if step is None else step
    origin = parent if parent is not None and parent.thread else None
    row = CheckpointRow(
        seq=seq,
        id=new_id(seq, meta.created_at // 1000),
        parent=None if parent is None else (parent.thread, parent.seq),
        step=step,
        move=move,
        digest=b"",
        label=details.label,
        meta=metas.encode(meta),
        refs=refs,
        skeleton=_encode_skeleton(skeleton),
    )
    commit = Commit(
        name=name,
        expect=expect,
        row=replace(row, digest=metas.digest_of(hashing, row, appends, b"" if parent is None else parent.digest)),
        appends=appends,
        blobs=blobs,
        summary=summary_of(row, meta),
        bases=() if origin is None else ((origin.thread, origin.seq),),
        origins=() if origin is None else (origin.thread,),
    )
    return commit, meta


def summary_of(row: CheckpointRow, meta: Meta) -> Summary:
    """The line that listings of threads show while this checkpoint is the head."""
    return Summary(step=row.step, status=meta.status, agent=meta.agent, size=meta.size, updated_at=meta.created_at)


class Saver:
    """Saves to one thread. It remembers the head it last saw; a save expects that no other writer has changed it."""

    def __init__(
        self, context: Context, name: str, state_type: StateType | None = None, schema_version: int | None = None
    ) -> None:
        self._context = context
        self._name = name
        self._state_type = state_type
        self._schema_version = schema_version
        self.lock: Final = context.lock(name)
        self._is_head_known = False
        self._head: SeenHead | None = None
        # The id and the move of a save that an interrupt ended: it may be stored.
        self._interrupted: tuple[bytes, int] | None = None

    @property
    def name(self) -> str:
        return self._name

    def is_of(self, context: Context) -> bool:
        """Whether this is a thread of the handle with this context."""
        return self._context is context

    @property
    def known_head(self) -> SeenHead | None:
        """The remembered head. It is read from the store if no head is remembered."""
        return self._head if self._is_head_known else self.refresh()

    @property
    def trace(self) -> str | None:
        """The place of the caller in the observer's traces."""
        return None if self._context.observer is None else self._context.observer.trace

    def remember(self, head: SeenHead | None) -> None:
        """Remember a head, without reading the store."""
        self._head = head
        self._is_head_known = True

    def refresh(self) -> SeenHead | None:
        """Read the head from the store and remember it."""
        self.remember(self.stored_head())
        return self._head

    # -- saving -----------------------------------------------------------------------------------------------------

    def request(self, state: Any, *, is_of_run: bool = False, **options: Unpack[SaveOptions]) -> SaveRequest:
        """Check the arguments of a save, convert the state to plain values and redact both."""
        context = self._context
        context.check_open()
        details = checked_details(context.redaction, self._schema_version, **options)
        if not is_of_run and details.meta.trigger in RUN_TRIGGERS:
            raise InvalidArgument(
                f"trigger {quoted(details.meta.trigger)} is reserved for checkpoints of runs and forks; nothing was "
                "saved. Use another text."
            )
        return SaveRequest(self.plain(state), details)

    def plain(self, state: Any) -> Any:
        """A state as plain values, redacted. Raises Unsupported for a state that cannot be stored or restored."""
        redaction, state_type = self._context.redaction, self._state_type
        if state_type is None:
            return redaction.copy(state)
        return redaction.restorable_copy(state_type.to_plain(state, redaction.placeholder), state_type.from_plain)

    def read_journal(self, past_effects: bool) -> int:
        """The newest journal entry. EffectsAhead if the run has made calls that a save would drop."""
        store = self._context.store
        thread = thread_named(store, self._name)
        run = None if thread is None else store.run(thread.position.thread)
        if thread is None or run is None:
            return 0
        last = store.last_entry(run.thread)
        if not past_effects:
            require_none_open(store, thread, run)
        return last

    def is_warm(self, expect: Expect) -> bool:
        """Whether `prepare` reads nothing from the store."""
        if not self._is_head_known or not (expect is None or expect is NEW):
            return False
        head = self._head
        return head is None or self._context.bases.get(head.position.thread, head.position.head) is not None

    def prepare(self, request: SaveRequest, expect: Expect | SeenHead) -> Save:
        """Find what is new in a state and lay out its commit. Nothing is stored. `expect` may be a head just read."""
        context, details = self._context, request.details
        if isinstance(expect, SeenHead):
            head: SeenHead | None = expect
        else:
            head = self._head if expect is None and self._is_head_known else self._expected(expect)
        is_of_run = details.meta.trigger in RUN_TRIGGERS
        if head is not None and details.step is not None and details.step <= head.as_parent.step and not is_of_run:
            self._require_no_run(head.position.thread)
        return save_of(
            self._name,
            request.state,
            details,
            expect=None if head is None else head.position,
            parent=None if head is None else head.as_parent,
            base=None if head is None else self._base(head),
            size_limit=context.max_state_bytes,
            hashing=context.store.hashing,
        )

    def commit(
        self,
        save: Save,
        fence: int | None = None,
        run: RunRow | None = None,
        entries: tuple[Entry, ...] = (),
        last_entry: int | None = None,
    ) -> Checkpoint:
        """Store a prepared save. When it returns, the checkpoint is durable and the head.

        The other arguments are what a run writes in the same transaction (`Commit`).
        """
        commit = replace(save.commit, fence=fence, run=run, entries=entries, last_entry=last_entry)
        with self.lock:
            return self.store([(self, replace(save, commit=commit))])[0]

    @staticmethod
    def store(saves: Sequence[tuple[Saver, Save]]) -> list[Checkpoint]:
        """Store prepared saves of different threads, all or none. The caller has their locks."""
        context = saves[0][0]._context
        commits: list[Commit] = []
        checkpoints: list[Checkpoint] = []
        for _, save in saves:
            commits.append(save.commit)
            checkpoints.append(metas.checkpoint_from(save.commit.name, save.commit.row, save.meta))
        try:
            with UNOBSERVED if context.observer is None else _observed(context.observer, commits):
                try:
                    positions = context.commit(*commits)
                except OutcomeUnknown as error:
                    error.checkpoint = checkpoints[0]
                    raise
                except JournalAhead:
                    raise
                except (LeaseHeld, Conflict) as error:
                    raise _refused(commits, error) from error
                for (saver, save), position in zip(saves, positions, strict=True):
                    saver._head, saver._is_head_known = SeenHead.written(position, save.commit.row, save.meta), True
                    context.bases.put(position.thread, save.draft.base(save.root))
                    if context.saved is not None:
                        context.saved(save.commit.name)
        except (KeyboardInterrupt, SystemExit):
            for saver, save in saves:
                saver._interrupted = save.commit.row.id, save.commit.row.move
            raise
        return checkpoints

    def follows_interrupted(self) -> bool:
        """Whether the head is a save of this object that an interrupt ended. Then it is remembered."""
        interrupted, self._interrupted = self._interrupted, None
        head = None if interrupted is None else self.stored_head()
        if head is None or (head.as_parent.id, head.position.move) != interrupted:
            return False
        self.remember(head)
        return True

    def is_behind(self, save: Save) -> bool:
        """Whether the thread is no longer where a prepared save expects it."""
        found = thread_named(self._context.store, self._name)
        return (None if found is None else found.position) != save.commit.expect

    def found(self, save: Save) -> Checkpoint | None:
        """The checkpoint of a save with an unknown outcome; None if it is not the head."""
        with self.lock:
            head = self.refresh()
        if head is None or head.as_parent.id != save.commit.row.id:
            return None
        return metas.checkpoint_from(self._name, save.commit.row, save.meta)

    def is_stored(self, state: Any) -> bool:
        """Whether a state is that of the head. Raises Unsupported or TooLarge for a state that cannot be stored."""
        head = self.known_head
        base = None if head is None else self._base(head)
        if base is None:
            return False
        draft = Draft(base.seq + 1, base, linear=True, hashing=self._context.store.hashing)
        return changed(self.plain(state), base.root, draft) is base.root

    def _require_no_run(self, thread: int) -> None:
        """Raise InvalidArgument if the thread has a run.

        The calls of a run are found by their step. If a step number were used again, its calls would get the results of
        the earlier step.
        """
        if self._context.store.run(thread) is not None:
            raise InvalidArgument(
                f"thread {quoted(self._name)} has a run, so its steps can only grow; nothing was saved. Omit step=, or "
                "rewind the thread first."
            )

    # -- the head of the thread -------------------------------------------------------------------------------------

    def _expected(self, expect: Expect) -> SeenHead | None:
        """The head that a save follows; None for a thread to be created."""
        if expect is None:
            return self.known_head
        # Not remembered: only latest() and a save that succeeds change the head that this object has seen.
        return None if expect is NEW else self.required(expect, self.stored_head())

    def required(self, expect: Expect, head: SeenHead | None) -> SeenHead | None:
        """The head that was just read, if the caller expects it or expects nothing. Else Conflict or AlreadyExists."""
        if not isinstance(expect, str | Checkpoint | Expectation | None) or expect == "":
            raise InvalidArgument("expect must be the id of a checkpoint, holdfast.NEW or holdfast.ANY")
        if expect is None or expect is ANY or (expect is NEW and head is None):
            return head
        if expect is NEW:
            raise AlreadyExists(
                f"thread {quoted(self._name)} already exists; nothing was saved. Call latest() to load it."
            )
        wanted = expect.id if isinstance(expect, Checkpoint) else str(expect)
        if head is None or to_text(head.as_parent.id) != wanted:
            found = "it does not exist" if head is None else f"its head is {to_text(head.as_parent.id)}"
            raise Conflict(
                f"thread {quoted(self._name)} was expected to have the head {quoted(wanted)}, but {found}; nothing was "
                "saved. Call latest() and try again."
            )
        return head

    def _base(self, head: SeenHead) -> Base | None:
        """The base of the head, loaded if needed. None if the head is damaged: then the whole state is stored."""
        base = self._context.bases.get(head.position.thread, head.position.head)
        if base is not None:
            return base
        try:
            return self.loaded_base(head)
        except Damaged:
            return None

    def loaded_base(self, head: SeenHead) -> Base | None:
        """The base of the head, loaded. Raises Damaged."""
        thread, seq = head.position.thread, head.position.head
        row = head.row or checkpoint_at(self._context.store, thread, seq)
        # Missing only if another writer moved the head and deleted it since: then the commit raises Conflict.
        return None if row is None or row.deleted else load_base(self._context.store, thread, row)

    def stored_head(self) -> SeenHead | None:
        """The head in the store. It is not remembered."""
        head = self._context.store.head(self._name)
        if head is None:
            return None
        try:
            row = head.row
        except Damaged:  # the thread can still be rewound and saved to
            return SeenHead.unreadable(head.thread)
        return replace(SeenHead.of(head.thread.position, row, metas.decode(row)), row=row)

    def require_compatible(self, head: Head) -> None:
        """Raise Incompatible if a head cannot be loaded in the thread's schema version."""
        if self._schema_version is None or (meta := metas.decode(head.row)).schema_version == self._schema_version:
            return
        number, row = head.thread.position.thread, head.row
        base = self._context.bases.get(number, row.seq) or load_base(
            self._context.store, number, row, limit=self._context.max_state_bytes
        )
        plain = state_of(self._context.store, base)
        self._context.migrations.migrated(self._name, plain, meta.schema_version, self._schema_version)

    def load_boundary(self, number: int, seq: int) -> Checkpoint:
        """Load the checkpoint from which a run resumes. The remembered head stays."""
        context = self._context
        row = checkpoint_at(context.store, number, seq)
        if row is None or row.deleted:
            raise NotFound(
                f"thread {quoted(self._name)}: the checkpoint to resume from was deleted, and the head was saved in "
                "the middle of the program; nothing was changed. Rewind the thread to the checkpoint to start from."
            )
        meta, base = metas.decode(row), context.bases.get(number, seq) or load_base(context.store, number, row)
        return metas.checkpoint_from(self._name, row, meta, self.restored(meta, state_of(context.store, base)))

    def replayed(self, number: int, step: int) -> Checkpoint | None:
        """The newest checkpoint of a step, without its state; None if it was deleted."""
        rows = self._context.store.checkpoints(number, before=None, limit=1, step=step)
        return metas.checkpoint_of(self._name, rows[0]) if rows else None

    def has_started_with(self, number: int, plain: Any) -> bool:
        """Whether the first checkpoint has this plain state, in any order, or a state of another schema version."""
        store = self._context.store
        row = checkpoint_at(store, number, 1)
        if row is None or row.deleted:
            return False
        if metas.decode(row).schema_version != self._schema_version:
            return True
        return bool(state_of(store, load_base(store, number, row)) == plain)

    def load_claimed(self, head: Head) -> Checkpoint:
        """Load the head of a thread that a claim has locked."""
        observer = self._context.observer
        if observer is None:
            return self.load_head(head)
        with observer.loading(self._name) as loading:
            found = self.load_head(head)
            loading.update(step=found.step)
            return found

    def load_head(self, head: Head) -> Checkpoint:
        """Load the head of the thread, and remember it."""
        context, row, position = self._context, head.checkpoint, head.thread.position
        if isinstance(row, Damaged) or row.deleted:
            row = head.row  # raises
        base = context.bases.get(position.thread, row.seq)
        if base is None:
            base = load_base(context.store, position.thread, row, limit=context.max_state_bytes)
            context.bases.put(position.thread, base)
        meta = metas.decode(row)
        self.remember(SeenHead.of(position, row, meta))
        return metas.checkpoint_from(self._name, row, meta, self.restored(meta, state_of(context.store, base)))

    def restored(self, meta: Meta, plain: Any) -> Any:
        """A stored state in the schema version and the type of this thread."""
        if self._schema_version is not None:
            plain = self._context.migrations.migrated(self._name, plain, meta.schema_version, self._schema_version)
        return plain if self._state_type is None else self._state_type.from_plain(plain)


# -- saves of one thread, or of several together ----------------------------------------------------------------------


class PendingSave(msgspec.Struct, frozen=True):
    """A save to be made. `prepare` lays it out after the current head; None if it was made before.

    `follows_any` is whether it is prepared again if another writer was faster. `past_effects` as in `Thread.save`.
    """

    saver: Saver
    prepare: Callable[[], Save | None]
    follows_any: bool
    past_effects: bool = False


def save_all(changes: Sequence[PendingSave]) -> list[Checkpoint]:
    """Save to different threads, all or none. An empty list, with nothing saved, if one of them was made before."""
    with changes[0].saver.lock if len(changes) == 1 else _locked(changes):
        for _ in range(MAX_RETRIES):
            saves: list[tuple[Saver, Save]] = []
            for change in changes:
                save = change.prepare()
                if save is None:
                    return []
                saves.append((change.saver, save))
            try:
                try:
                    return Saver.store(saves)
                except JournalAhead:
                    return Saver.store(_past_journals(changes, saves))
            except EffectsAhead:
                raise
            except Conflict:
                if any(change.saver.follows_interrupted() for change in changes):
                    continue
                fixed = [each for each, change in zip(saves, changes, strict=True) if not change.follows_any]
                if len(fixed) == len(changes) or any(saver.is_behind(save) for saver, save in fixed):
                    raise
    names = _listed([change.saver.name for change in changes])
    raise Conflict(f"{names}: other writers were faster {MAX_RETRIES} times; nothing was saved. Try again.")


def _locked(changes: Sequence[PendingSave]) -> ExitStack:
    """The locks of the threads, taken in the order of their names, so that two callers never wait for each other."""
    with ExitStack() as stack:
        for saver in sorted([change.saver for change in changes], key=lambda saver: saver.name):
            stack.enter_context(saver.lock)
        return stack.pop_all()


def _past_journals(changes: Sequence[PendingSave], saves: Sequence[tuple[Saver, Save]]) -> list[tuple[Saver, Save]]:
    """The saves, each with the newest entry of its thread's journal. EffectsAhead as in `Thread.save`."""
    seen: list[tuple[Saver, Save]] = []
    for change, (saver, save) in zip(changes, saves, strict=True):
        last = saver.read_journal(change.past_effects)
        seen.append((saver, replace(save, commit=replace(save.commit, last_entry=last))))
    return seen


def _observed(observer: Observer, commits: Sequence[Commit]) -> ExitStack:
    with ExitStack() as stack:
        for commit in commits:
            stack.enter_context(observer.saving(commit.name, commit.row.step))
        return stack.pop_all()


def _listed(names: Sequence[str]) -> str:
    return f"thread{'s' if len(names) > 1 else ''} {', '.join(map(quoted, names))}"


def _refused(commits: Sequence[Commit], error: LeaseHeld | Conflict) -> LeaseHeld | Conflict:
    """The error of commits that the store refused, with the names of the threads."""
    one = len(commits) == 1
    names = _listed([commit.name for commit in commits])
    if isinstance(error, LeaseHeld):
        return LeaseHeld(f"{names} {'was' if one else 'were'} not saved: {error}")
    if isinstance(error, AlreadyExists) or (one and commits[0].expect is None):
        found = "already exists" if one else "cannot be saved together, because one of them already exists"
        return AlreadyExists(f"{names} {found}; nothing was saved. Call latest() to load it.")
    found = "was changed" if one else "cannot be saved together, because one of them was changed"
    return Conflict(f"{names} {found} by another writer; nothing was saved. Call latest() and try again.")
