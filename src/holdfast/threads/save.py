"""Save a state: request, commit, acknowledged checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, final

import msgspec
from msgspec.structs import replace

from holdfast.delta.base import Base
from holdfast.delta.change import changed
from holdfast.delta.draft import Draft, Skeleton
from holdfast.delta.load import load_base, read_skeleton, rebased
from holdfast.delta.parts import Map, Part, refs_of
from holdfast.errors import AlreadyExists, Conflict, Damaged, InvalidArgument, LeaseHeld, OutcomeUnknown, TooLarge
from holdfast.ids import SEQ_MAX, new_id, to_text
from holdfast.redaction import Redaction
from holdfast.stores.contract import CheckpointRow, Commit, Position, Refs, Run, SharedValue, Summary, ThreadRow
from holdfast.stores.hashing import Hashing
from holdfast.stores.running import EffectRow, RunRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.ancestry import RACES_MAX
from holdfast.threads.context import Conversion, Session
from holdfast.threads.metadata import Meta
from holdfast.threads.process import unless_dead
from holdfast.types import Checkpoint

_skeletons = msgspec.msgpack.Encoder()


class Parent(msgspec.Struct, frozen=True):
    """What a new checkpoint needs to know of the one it follows. `thread` is 0 within the same thread.

    `readable` is False for one whose record is damaged: then its digest is not known. `schema_version` is what a save
    takes over that says none: whoever knows nothing of versions has not changed the schema. `took` is how many
    microseconds it took to be durable, 0 if another handle wrote it.
    """

    thread: int
    seq: int
    id: bytes
    digest: bytes
    step: int
    readable: bool = True
    schema_version: int | None = None
    took: int = 0


class Head(msgspec.Struct, frozen=True):
    """Where a thread stands, as a handle last saw it."""

    position: Position
    parent: Parent

    @classmethod
    def of(cls, position: Position, row: CheckpointRow) -> Head:
        version = metas.decode(row).schema_version
        return cls(position, Parent(0, row.seq, row.id, row.digest, row.step, schema_version=version))

    @classmethod
    def written(cls, position: Position, row: CheckpointRow) -> Head:
        """A head that is durable as of now."""
        meta = metas.decode(row)
        took = max(0, time.time_ns() // 1000 - meta.created_at)
        parent = Parent(0, row.seq, row.id, row.digest, row.step, schema_version=meta.schema_version, took=took)
        return cls(position, parent)

    @classmethod
    def unreadable(cls, thread: ThreadRow) -> Head:
        """A head whose record is damaged, as the thread's own record shows it."""
        parent = Parent(0, thread.position.head, thread.head_id, bytes(32), thread.summary.step, readable=False)
        return cls(thread.position, parent)


class Details(msgspec.Struct, frozen=True):
    """What a save says besides the state, checked. `meta` lacks size and parent, known only later."""

    step: int | None
    label: str | None
    meta: Meta


class Save(msgspec.Struct, frozen=True):
    """A save ready to be committed, and what the handle will hold once it is."""

    commit: Commit
    draft: Draft
    root: Part

    def base(self) -> Base:
        return self.draft.base(self.root)


def checked_details(
    redaction: Redaction,
    *,
    step: object = None,
    label: object = None,
    tags: object = (),
    metadata: object = None,
    status: object = "running",
    reason: object = None,
    trigger: object = "manual",
    agent: object = None,
    usage: object = None,
    resume_hint: object = None,
    schema_version: int | None = None,
) -> Details:
    """What the caller says about a save, as it is recorded. InvalidArgument before anything is touched."""
    if step is not None and (type(step) is not int or not 0 <= step < 2**63):
        raise InvalidArgument("step must be a whole number, 0 or more")
    meta = Meta(
        created_at=time.time_ns() // 1000,
        size=0,
        status=metas.checked_status(status),
        reason=metas.checked_text("reason", reason, redaction),
        tags=metas.checked_tags(tags, redaction),
        metadata=metas.checked_metadata(metadata, redaction),
        agent=metas.checked_text("agent", agent),
        trigger=metas.checked_text("trigger", trigger) or "manual",
        usage=metas.checked_usage(usage),
        resume_hint=metas.checked_text("resume_hint", resume_hint, redaction),
        schema_version=schema_version,
    )
    return Details(step, metas.checked_text("label", label, redaction, empty=False), meta)


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
    """The save of a plain state, storing what `base` does not have. Unsupported or TooLarge if it cannot be."""
    if details.meta.schema_version is None and parent is not None and parent.schema_version is not None:
        details = replace(details, meta=replace(details.meta, schema_version=parent.schema_version))
    seq = _next_seq(expect)
    linear = base is not None and expect is not None and base.seq == expect.last
    draft = Draft(seq, base, linear=linear, hashing=hashing)
    root = changed(state, None if base is None else base.root, draft)
    if root.size > size_limit:
        raise TooLarge(
            f"the state takes {root.size} bytes and the limit is {size_limit}; "
            "keep less in it, or open the store with a larger max_state_bytes"
        )
    refs = root.refs if isinstance(root, Map) else refs_of((root,))
    skeleton, runs = draft.finish(root)
    commit = _commit(
        name,
        details,
        skeleton,
        refs,
        hashing,
        expect=expect,
        parent=parent,
        runs=runs,
        values=tuple(draft.values.values()),
    )
    return Save(commit, draft, root)


def fork_details(source: CheckpointRow, schema_version: int | None) -> Details:
    """What the first checkpoint of a fork says about itself: what its source said, but for when and how it came."""
    meta = metas.decode(source)
    if schema_version is None:
        schema_version = meta.schema_version
    meta = replace(meta, created_at=time.time_ns() // 1000, trigger="fork", schema_version=schema_version)
    return Details(source.step, source.label, meta)


def fork_of(
    name: str,
    source: CheckpointRow,
    origin: int,
    details: Details,
    hashing: Hashing,
    *,
    expect: Position | None = None,
    parent: Parent | None = None,
) -> Commit:
    """The commit of a checkpoint that names the cells of another thread's and stores none.

    It begins a thread, or stands in the one that is at `expect` under `parent`.
    """
    branch = 1 if expect is None else expect.last + 1
    skeleton = replace(read_skeleton(source), branch=branch, ends=(0, 0), wrote=())
    above = parent or Parent(origin, source.seq, source.id, source.digest, source.step)
    refs = seen_from_fork(source, origin).refs
    commit = _commit(name, details, skeleton, refs, hashing, expect=expect, parent=above)
    return replace(commit, bases=((origin, source.seq),), origins=(origin,))


def seen_from_fork(source: CheckpointRow, origin: int) -> CheckpointRow:
    """A checkpoint with its references as another thread has to write them."""
    spans = tuple(rebased(span, origin) for span in source.refs.spans)
    return replace(source, refs=Refs(spans, source.refs.values))


def summary_of(row: CheckpointRow, meta: Meta) -> Summary:
    return Summary(step=row.step, status=meta.status, agent=meta.agent, size=meta.size, updated_at=meta.created_at)


def _next_seq(expect: Position | None) -> int:
    if expect is None:
        return 1
    if expect.last >= SEQ_MAX:
        raise InvalidArgument(f"a thread holds at most {SEQ_MAX} checkpoints; fork it to go on")
    return expect.last + 1


def _commit(
    name: str,
    details: Details,
    skeleton: Skeleton,
    refs: Refs,
    hashing: Hashing,
    *,
    expect: Position | None,
    parent: Parent | None,
    runs: tuple[Run, ...] = (),
    values: tuple[SharedValue, ...] = (),
) -> Commit:
    seq = _next_seq(expect)
    step = details.step
    if step is None:
        step = 1 if parent is None else parent.step + 1
    foreign = parent if parent is not None and parent.thread else None
    meta = replace(
        details.meta,
        size=skeleton.size,
        parent=None if parent is None else parent.id,
        parent_digest=parent.digest if parent is not None and (parent.thread or not parent.readable) else b"",
        parent_took=0 if parent is None else parent.took,
    )
    row = CheckpointRow(
        seq=seq,
        id=new_id(seq, meta.created_at // 1000),
        parent=None if parent is None else (parent.thread, parent.seq),
        step=step,
        move=1 if expect is None else expect.move + 1,
        digest=b"",
        label=details.label,
        meta=metas.encode(meta),
        refs=refs,
        skeleton=_skeletons.encode(skeleton),
    )
    digest = metas.digest_of(hashing, row, runs, b"" if parent is None else parent.digest)
    return Commit(
        name=name,
        expect=expect,
        row=replace(row, digest=digest),
        runs=runs,
        values=values,
        summary=summary_of(row, meta),
        bases=() if foreign is None else ((foreign.thread, foreign.seq),),
        origins=() if foreign is None else (foreign.thread,),
    )


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
"""Expect nothing: save on top of whatever the head is."""

Expect: TypeAlias = str | Checkpoint | Expectation | None


class Saver:
    """One handle's side of the compare-and-set: it saves on top of the head it last saw."""

    def __init__(self, session: Session, name: str, conversion: Conversion, schema_version: int | None) -> None:
        self._session = session
        self._name = name
        self._conversion = conversion
        self._schema_version = schema_version
        self.line: Final = session.line(name)
        self._seen = False
        self._head: Head | None = None

    @property
    def head(self) -> Head | None:
        """The head last seen; looks if none was yet."""
        return self._head if self._seen else self.look()

    @property
    def trace(self) -> str | None:
        """Where the caller is, for whoever observes this handle."""
        return None if self._session.observer is None else self._session.observer.trace

    def see(self, head: Head | None) -> None:
        self._head = head
        self._seen = True

    def look(self) -> Head | None:
        """See where the thread is now."""
        self.see(self._current())
        return self._head

    def _current(self) -> Head | None:
        standing = self._standing()
        if standing is None:
            return None
        thread, row = standing
        # A thread must not be lost with its head: it can be rewound, and saved to.
        return Head.unreadable(thread) if isinstance(row, Damaged) else Head.of(thread.position, row)

    def current_row(self) -> CheckpointRow | None:
        """The head as it is stored. `Damaged` if it cannot be read."""
        standing = self._standing()
        if standing is None:
            return None
        if isinstance(standing[1], Damaged):
            raise standing[1]
        return standing[1]

    def _standing(self) -> tuple[ThreadRow, CheckpointRow | Damaged] | None:
        """The thread and its head. A head that is gone by the time it is read was one no more, and may be deleted."""
        store = self._session.store
        for _ in range(RACES_MAX):
            thread = store.thread(self._name)
            if thread is None:
                return None
            try:
                return thread, self.head_row(thread)
            except Damaged as damage:
                now = store.thread(self._name)
                if now is not None and now.position == thread.position:
                    return thread, damage
        raise Conflict(f"thread {quoted(self._name)}: it moved {RACES_MAX} times while it was being read")

    def head_row(self, thread: ThreadRow) -> CheckpointRow:
        row = self._session.store.checkpoint(thread.position.thread, thread.position.head)
        if row is None or row.deleted:
            raise Damaged(f"thread {quoted(self._name)}: checkpoint {thread.position.head}, its head, is missing")
        return row

    def is_warm(self, expect: Expect) -> bool:
        """Whether `prepare` would need nothing from the store."""
        if not self._seen or not (expect is None or expect is NEW):
            return False
        return self._head is None or self._held(self._head) is not None

    def request(self, state: Any, given: Mapping[str, object]) -> tuple[Any, Details]:
        """The state as plain values, and what is said about it, both checked."""
        self._session.check_open()
        details = checked_details(self._session.redaction, **given, schema_version=self._schema_version)
        conversion = self._conversion
        return self._session.redaction.restorable(conversion.to_plain(state), conversion.from_plain), details

    def save(self, plain: Any, details: Details, expect: Expect) -> Checkpoint:
        """Store a plain state as the thread's new head."""
        with self.line:
            for _ in range(RACES_MAX):
                try:
                    return self.commit(self.prepare(plain, details, expect))
                except Conflict:
                    if expect is not ANY:
                        raise
        raise Conflict(f"thread {quoted(self._name)}: other writers were faster {RACES_MAX} times in a row")

    def prepare(self, plain: Any, details: Details, expect: Expect) -> Save:
        """Find what is new in a state and lay it out. Nothing is stored."""
        head = self._expected(expect)
        if head is not None and details.step is not None and details.step <= head.parent.step:
            self._require_no_run(head.position.thread)
        return save_of(
            self._name,
            plain,
            details,
            expect=None if head is None else head.position,
            parent=None if head is None else head.parent,
            base=None if head is None else self._base(head),
            size_limit=self._session.max_state_bytes,
            hashing=self._session.store.hashing,
        )

    def commit(
        self,
        save: Save,
        *,
        fence: int | None = None,
        run: RunRow | None = None,
        effects: tuple[EffectRow, ...] = (),
    ) -> Checkpoint:
        """Store a prepared save; when it returns, the checkpoint is durable and the head.

        `fence`, `run` and `effects` are what a run writes with it.
        """
        observer = self._session.observer
        if observer is None:
            return self._commit(save, fence, run, effects)
        with observer.saving(self._name, save.commit.row.step):
            return self._commit(save, fence, run, effects)

    def _commit(self, save: Save, fence: int | None, run: RunRow | None, effects: tuple[EffectRow, ...]) -> Checkpoint:
        checkpoint = metas.checkpoint_of(self._name, save.commit.row)
        commit = replace(save.commit, fence=fence, run=run, effects=effects)
        with self.line:
            try:
                position = self._stored(commit)
            except OutcomeUnknown as error:
                error.checkpoint = checkpoint
                raise
            except LeaseHeld as held:
                raise LeaseHeld(
                    f"thread {quoted(self._name)} is being run by another worker, and nothing was stored; "
                    "wait for it to end"
                ) from held
            except Conflict as conflict:
                if save.commit.expect is None:
                    raise AlreadyExists(
                        f"there is a thread {quoted(self._name)} already, and nothing was stored; latest() shows it"
                    ) from conflict
                raise Conflict(
                    f"thread {quoted(self._name)} is not where this handle last saw it, and nothing was stored; "
                    "latest() shows where it is now"
                ) from conflict
            self.see(Head.written(position, save.commit.row))
            self._session.bases.put(position.thread, save.base())
        self._session.saved(self._name)
        return checkpoint

    def _stored(self, commit: Commit) -> Position:
        store = self._session.store
        if commit.expect is None:
            return store.commit(commit)
        return unless_dead(store, commit.expect.thread, lambda: store.commit(commit))

    def _require_no_run(self, thread: int) -> None:
        """The calls of a run are told by their steps: in one that came again they would be answered from before."""
        if self._session.store.run(thread) is not None:
            raise InvalidArgument(
                f"thread {quoted(self._name)} has a run, so its steps only grow; leave step= away, or rewind it"
            )

    def _expected(self, expect: Expect) -> Head | None:
        """The head a save builds on; None for a thread to be created."""
        if expect is None:
            return self.head
        if expect is NEW:
            return None
        if not isinstance(expect, str | Checkpoint | Expectation) or expect == "":
            raise InvalidArgument("expect must be a checkpoint's id, holdfast.NEW or holdfast.ANY")
        # Only a save that succeeds, or `latest`, changes what this handle has seen.
        head = self._current()
        if expect is ANY:
            return head
        wanted = expect.id if isinstance(expect, Checkpoint) else str(expect)
        if head is None or to_text(head.parent.id) != wanted:
            found = "does not exist" if head is None else f"has the head {to_text(head.parent.id)}"
            raise Conflict(f"thread {quoted(self._name)} {found}, not {quoted(wanted)}; nothing was stored")
        return head

    def _held(self, head: Head) -> Base | None:
        return self._session.bases.get(head.position.thread, head.position.head)

    def _base(self, head: Head) -> Base | None:
        """What the handle holds of the head, loading it if need be. None if it is damaged: then all is stored anew."""
        base = self._held(head)
        if base is not None:
            return base
        thread, seq = head.position.thread, head.position.head
        try:
            row = self._session.store.checkpoint(thread, seq)
            # Gone only if somebody moved the head and deleted it since: the commit will say Conflict.
            return None if row is None or row.deleted else load_base(self._session.store, thread, row)
        except Damaged:
            return None
