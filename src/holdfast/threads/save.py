"""Save a state: the request, the commit made of it, and the compare-and-set on the thread's head."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, TypeAlias, TypedDict, Unpack, final

import msgspec
from msgspec.structs import replace

from holdfast.codec.typed import StateType
from holdfast.delta.base import Base
from holdfast.delta.change import changed
from holdfast.delta.draft import Draft, Skeleton
from holdfast.delta.load import load_base, state_of
from holdfast.delta.parts import Map, Part, refs_of
from holdfast.errors import AlreadyExists, Conflict, Damaged, InvalidArgument, LeaseHeld, OutcomeUnknown, TooLarge
from holdfast.ids import SEQ_MAX, new_id, to_text
from holdfast.redaction import Redaction
from holdfast.stores.contract import Append, Blob, CheckpointRow, Commit, Hashing, Position, Refs, Summary, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.context import MAX_RETRIES, UNOBSERVED, Context
from holdfast.threads.metadata import Meta
from holdfast.types import Checkpoint, Status, Usage

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


class SaveOptions(TypedDict, total=False):
    """The arguments of a save besides the state, as callers give them."""

    step: int | None
    label: str | None
    tags: Iterable[str]
    metadata: dict[str, Any] | None
    status: Status
    reason: str | None
    trigger: str
    agent: str | None
    usage: Usage | dict[str, Any] | None
    resume_hint: str | None


class Details(msgspec.Struct, frozen=True):
    """The arguments of a save, checked and redacted. `meta` has no size and no parent yet."""

    step: int | None
    label: str | None
    meta: Meta


class SaveRequest(msgspec.Struct, frozen=True):
    """A save to be made: the state as plain values, redacted, and the details."""

    state: Any
    details: Details


def checked_details(
    redaction: Redaction,
    schema_version: int | None = None,
    *,
    step: int | None = None,
    label: str | None = None,
    tags: Iterable[str] = (),
    metadata: dict[str, Any] | None = None,
    status: Status = "running",
    reason: str | None = None,
    trigger: str = "manual",
    agent: str | None = None,
    usage: Usage | dict[str, Any] | None = None,
    resume_hint: str | None = None,
) -> Details:
    """Check the arguments of a save. Raises InvalidArgument, or Unsupported for metadata that cannot be stored."""
    if step is not None and (type(step) is not int or not 0 <= step < 2**63):
        raise InvalidArgument("step must be a whole number, 0 or more")
    meta = Meta(
        created_at=time.time_ns() // 1000,
        size=0,
        status=metas.checked_status(status),
        reason=None if reason is None else metas.checked_text("reason", reason, redaction),
        tags=metas.checked_tags(tags, redaction),
        metadata=b"" if metadata is None else metas.checked_metadata(metadata, redaction),
        agent=None if agent is None else metas.checked_text("agent", agent),
        trigger=metas.checked_text("trigger", trigger) or "manual",
        usage=None if usage is None else metas.checked_usage(usage),
        resume_hint=None if resume_hint is None else metas.checked_text("resume_hint", resume_hint, redaction),
        schema_version=schema_version,
    )
    return Details(step, None if label is None else metas.checked_text("label", label, redaction, empty=False), meta)


# -- the commit -------------------------------------------------------------------------------------------------------


class Parent(msgspec.Struct, frozen=True):
    """The checkpoint that a new one follows. `thread` is 0 within the same thread.

    `readable` is False if its record is damaged: then its digest is not known. A save without a schema version takes
    over `schema_version`. `took` is how many microseconds the parent took to become durable, 0 if another handle wrote
    it.
    """

    thread: int
    seq: int
    id: bytes
    digest: bytes
    step: int
    readable: bool = True
    schema_version: int | None = None
    took: int = 0

    @classmethod
    def of(cls, row: CheckpointRow, thread: int = 0) -> Parent:
        return cls(thread, row.seq, row.id, row.digest, row.step)


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
    draft = Draft(1 if expect is None else expect.last + 1, base, linear=linear, hashing=hashing)
    root = changed(state, None if base is None else base.root, draft)
    if root.size > size_limit:
        raise TooLarge(
            f"the state takes {root.size} bytes and the limit is {size_limit}; nothing was saved. "
            "Keep less in it, or open the store with a larger max_state_bytes"
        )
    refs = root.refs if isinstance(root, Map) else refs_of((root,))
    skeleton, runs = draft.finish(root)
    values = tuple(draft.values.values())
    commit, meta = commit_of(
        name, details, skeleton, refs, hashing, expect=expect, parent=parent, runs=runs, values=values
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
    runs: tuple[Append, ...] = (),
    values: tuple[Blob, ...] = (),
) -> tuple[Commit, Meta]:
    """The commit of a checkpoint under `parent`, and its metadata."""
    seq, move, step = 1, 1, details.step
    if expect is not None:
        if expect.last >= SEQ_MAX:
            raise InvalidArgument(f"a thread holds at most {SEQ_MAX} checkpoints; fork the thread to continue")
        seq, move = expect.last + 1, expect.move + 1
    if parent is None:
        meta = replace(details.meta, size=skeleton.size)
        step = 1 if step is None else step
    else:
        version = details.meta.schema_version
        meta = replace(
            details.meta,
            size=skeleton.size,
            parent=parent.id,
            parent_digest=parent.digest if parent.thread or not parent.readable else b"",
            parent_took=parent.took,
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
        row=replace(row, digest=metas.digest_of(hashing, row, runs, b"" if parent is None else parent.digest)),
        appends=runs,
        blobs=values,
        summary=summary_of(row, meta),
        bases=() if origin is None else ((origin.thread, origin.seq),),
        origins=() if origin is None else (origin.thread,),
    )
    return commit, meta


def summary_of(row: CheckpointRow, meta: Meta) -> Summary:
    """The line that listings of threads show while this checkpoint is the head."""
    return Summary(step=row.step, status=meta.status, agent=meta.agent, size=meta.size, updated_at=meta.created_at)


# -- the head ---------------------------------------------------------------------------------------------------------


class SeenHead(msgspec.Struct, frozen=True):
    """The head of a thread, as a handle last saw it."""

    position: Position
    parent: Parent

    @classmethod
    def of(cls, position: Position, row: CheckpointRow, meta: Meta) -> SeenHead:
        return cls(position, Parent(0, row.seq, row.id, row.digest, row.step, schema_version=meta.schema_version))

    @classmethod
    def written(cls, position: Position, row: CheckpointRow, meta: Meta) -> SeenHead:
        """A head that has just become durable."""
        took = max(0, time.time_ns() // 1000 - meta.created_at)
        version = meta.schema_version
        return cls(position, Parent(0, row.seq, row.id, row.digest, row.step, schema_version=version, took=took))

    @classmethod
    def unreadable(cls, thread: ThreadRow) -> SeenHead:
        """A head whose record is damaged. The thread's own record has its id and step."""
        parent = Parent(0, thread.position.head, thread.head_id, bytes(32), thread.summary.step, readable=False)
        return cls(thread.position, parent)


class Saver:
    """Saves to one thread. It remembers the head it last saw, and a save expects the thread to be there still."""

    def __init__(
        self, session: Context, name: str, state_type: StateType | None = None, schema_version: int | None = None
    ) -> None:
        self._session = session
        self._name = name
        self._state_type = state_type
        self._schema_version = schema_version
        self.lock: Final = session.lock(name)
        self._seen = False
        self._head: SeenHead | None = None

    @property
    def head(self) -> SeenHead | None:
        """The head last seen. The first time, it is read from the store."""
        return self._head if self._seen else self.look()

    @property
    def trace(self) -> str | None:
        """The place of the caller in the observer's traces."""
        return None if self._session.observer is None else self._session.observer.trace

    def see(self, head: SeenHead | None) -> None:
        """Remember a head."""
        self._head = head
        self._seen = True

    def look(self) -> SeenHead | None:
        """Read the head and remember it."""
        self.see(self._current())
        return self._head

    # -- saving -----------------------------------------------------------------------------------------------------

    def request(self, state: Any, **options: Unpack[SaveOptions]) -> SaveRequest:
        """Check the arguments of a save, convert the state to plain values and redact both."""
        session = self._session
        session.check_open()
        details = checked_details(session.redaction, self._schema_version, **options)
        return SaveRequest(self.plain(state), details)

    def plain(self, state: Any) -> Any:
        """A state as plain values, redacted. Raises Unsupported for a state that cannot be stored or restored."""
        redaction, state_type = self._session.redaction, self._state_type
        if state_type is None:
            return redaction.value(state)
        return redaction.restorable(state_type.to_plain(state), state_type.from_plain)

    def save(self, request: SaveRequest, expect: Expect) -> Checkpoint:
        """Store a state as the thread's new head."""
        with self.lock:
            for _ in range(MAX_RETRIES):
                try:
                    return self._commit(self.prepare(request, expect), None, None, ())
                except Conflict:
                    if expect is not ANY:
                        raise
        raise Conflict(
            f"thread {quoted(self._name)}: other writers were faster {MAX_RETRIES} times; nothing was saved. Try again"
        )

    def is_warm(self, expect: Expect) -> bool:
        """Whether `prepare` reads nothing from the store."""
        if not self._seen or not (expect is None or expect is NEW):
            return False
        head = self._head
        return head is None or self._session.bases.get(head.position.thread, head.position.head) is not None

    def prepare(self, request: SaveRequest, expect: Expect) -> Save:
        """Find what is new in a state and lay out its commit. Nothing is stored."""
        session, details = self._session, request.details
        head = self._head if expect is None and self._seen else self._expected(expect)
        if head is not None and details.step is not None and details.step <= head.parent.step:
            self.require_no_run(head.position.thread)
        return save_of(
            self._name,
            request.state,
            details,
            expect=None if head is None else head.position,
            parent=None if head is None else head.parent,
            base=None if head is None else self._base(head),
            size_limit=session.max_state_bytes,
            hashing=session.store.hashing,
        )

    def commit(
        self,
        save: Save,
        *,
        fence: int | None = None,
        run: RunRow | None = None,
        effects: tuple[Entry, ...] = (),
    ) -> Checkpoint:
        """Store a prepared save. When it returns, the checkpoint is durable and the head.

        `fence`, `run` and `effects` are what a run writes in the same transaction.
        """
        with self.lock:
            return self._commit(save, fence, run, effects)

    def _commit(self, save: Save, fence: int | None, run: RunRow | None, effects: tuple[Entry, ...]) -> Checkpoint:
        session, row = self._session, save.commit.row
        checkpoint = metas.checkpoint_from(self._name, row, save.meta)
        observer = session.observer
        with UNOBSERVED if observer is None else observer.saving(self._name, row.step):
            try:
                position = session.commit(replace(save.commit, fence=fence, run=run, entries=effects))
            except OutcomeUnknown as error:
                error.checkpoint = checkpoint
                raise
            except LeaseHeld as held:
                raise LeaseHeld(
                    f"thread {quoted(self._name)} is being run by another worker; nothing was saved. "
                    "Wait until the run ends, or cancel it"
                ) from held
            except Conflict as conflict:
                if save.commit.expect is None:
                    raise AlreadyExists(
                        f"thread {quoted(self._name)} already exists; nothing was saved. latest() loads it"
                    ) from conflict
                raise Conflict(
                    f"thread {quoted(self._name)} was changed by another writer; nothing was saved. "
                    "Call latest() and try again"
                ) from conflict
            self._head, self._seen = SeenHead.written(position, row, save.meta), True
            session.bases.put(position.thread, save.draft.base(save.root))
            session.saved(self._name)
            return checkpoint

    def require_no_run(self, thread: int) -> None:
        """Steps identify the calls of a run: in a step that is used again, calls would get earlier results."""
        if self._session.store.run(thread) is not None:
            raise InvalidArgument(
                f"thread {quoted(self._name)} has a run, so its steps can only grow; omit step=, or rewind the thread"
            )

    # -- the head of the thread -------------------------------------------------------------------------------------

    def _expected(self, expect: Expect) -> SeenHead | None:
        """The head that a save follows; None for a thread to be created."""
        if expect is None:
            return self.head
        if expect is NEW:
            return None
        if not isinstance(expect, str | Checkpoint | Expectation) or expect == "":
            raise InvalidArgument("expect must be the id of a checkpoint, holdfast.NEW or holdfast.ANY")
        # Not remembered: only latest() and a save that succeeds change the head that this handle has seen.
        head = self._current()
        if expect is ANY:
            return head
        wanted = expect.id if isinstance(expect, Checkpoint) else str(expect)
        if head is None or to_text(head.parent.id) != wanted:
            found = "does not exist" if head is None else f"has the head {to_text(head.parent.id)}"
            raise Conflict(f"thread {quoted(self._name)} {found}, not {quoted(wanted)}; nothing was saved")
        return head

    def _base(self, head: SeenHead) -> Base | None:
        """The base of the head, loaded if needed. None if the head is damaged: then the whole state is stored."""
        thread, seq = head.position.thread, head.position.head
        base = self._session.bases.get(thread, seq)
        if base is not None:
            return base
        try:
            row = self._session.store.checkpoint(thread, seq)
            # Missing only if another writer moved the head and deleted it since: then the commit raises Conflict.
            return None if row is None or row.deleted else load_base(self._session.store, thread, row)
        except Damaged:
            return None

    def _current(self) -> SeenHead | None:
        found = self._thread_and_head()
        if found is None:
            return None
        thread, row = found
        if isinstance(row, Damaged):  # the thread can still be rewound and saved to
            return SeenHead.unreadable(thread)
        return SeenHead.of(thread.position, row, metas.decode(row))

    def current_row(self) -> CheckpointRow | None:
        """The stored head. Raises Damaged if it cannot be read."""
        found = self._thread_and_head()
        if found is None:
            return None
        if isinstance(found[1], Damaged):
            raise found[1]
        return found[1]

    def require_compatible(self) -> None:
        """Raise Incompatible if the head cannot be loaded in the thread's schema version."""
        row = None if self._schema_version is None else self.current_row()
        thread = None if row is None else self._session.store.thread(self._name)
        if row is None or thread is None or (meta := metas.decode(row)).schema_version == self._schema_version:
            return
        number = thread.position.thread
        base = self._session.bases.get(number, row.seq) or load_base(self._session.store, number, row)
        plain = state_of(self._session.store, base)
        self._session.migrations.migrated(self._name, plain, meta.schema_version, self._schema_version)

    def _thread_and_head(self) -> tuple[ThreadRow, CheckpointRow | Damaged] | None:
        """The thread and its head. Read again if another writer moved the thread in between."""
        store = self._session.store
        for _ in range(MAX_RETRIES):
            thread = store.thread(self._name)
            if thread is None:
                return None
            try:
                return thread, self.head_row(thread)
            except Damaged as damage:
                now = store.thread(self._name)
                if now is not None and now.position == thread.position:
                    return thread, damage
        raise self.moved()

    def head_row(self, thread: ThreadRow) -> CheckpointRow:
        """The head of a thread that was just read. Raises Damaged if it is missing."""
        row = self._session.store.checkpoint(thread.position.thread, thread.position.head)
        if row is None or row.deleted:
            raise Damaged(f"thread {quoted(self._name)}: its head, checkpoint {thread.position.head}, is missing")
        return row

    def moved(self) -> Conflict:
        """The error for a thread that other writers move faster than it can be read."""
        return Conflict(
            f"thread {quoted(self._name)} was changed {MAX_RETRIES} times while it was being read. Try again"
        )
