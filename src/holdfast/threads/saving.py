"""One save: from a state and what is said about it to a commit."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.errors import InvalidArgument, TooLarge
from holdfast.identity import SEQ_MAX, new_id
from holdfast.redaction import Redaction
from holdfast.state.base import Base
from holdfast.state.change import changed
from holdfast.state.draft import Draft, Skeleton
from holdfast.state.loading import read_skeleton
from holdfast.state.parts import Map, Part, refs_of
from holdfast.state.reach import rebased
from holdfast.stores.contract import CheckpointRow, Commit, Position, Refs, Run, SharedValue, Summary, ThreadRow
from holdfast.stores.hashing import Hashing
from holdfast.threads import meta as metas
from holdfast.threads.meta import Meta

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
    runs = draft.runs()
    commit = _commit(
        name,
        details,
        draft.skeleton(root, runs),
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
