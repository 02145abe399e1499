"""A thread: a named line of work of one agent, and every verb on its checkpoints."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from holdfast.delta.load import load_base, state_of
from holdfast.delta.salvage import salvaged
from holdfast.errors import AlreadyExists, Conflict, Damaged, InvalidArgument, NotFound, OutcomeUnknown
from holdfast.ids import to_text
from holdfast.stores.contract import CheckpointRow, ThreadRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.ancestry import RACES_MAX
from holdfast.threads.context import Session
from holdfast.threads.diff import Diff, diff
from holdfast.threads.effects import require_none_ahead
from holdfast.threads.history import checkpoints, newest_undamaged, passing_over, whole
from holdfast.threads.process import unless_dead
from holdfast.threads.refs import find_row, seq_before
from holdfast.threads.retention import Pruned, Retention, removable, remove
from holdfast.threads.save import (
    Expect,
    Head,
    Parent,
    Saver,
    fork_details,
    fork_of,
    save_of,
    seen_from_fork,
    summary_of,
)
from holdfast.types import Checkpoint, Lost, Skipped, Status, Usage

Ref: TypeAlias = str | Checkpoint


class Thread:
    """A handle on one thread. Get it from `hf.thread(name)`.

    It remembers the head it last saw. A save expects the thread to be there still, and raises Conflict if somebody
    else has saved or rewound it since. `latest()` looks anew.
    """

    def __init__(self, session: Session, name: str, type: Any = None, schema_version: int | None = None) -> None:
        checked_name(name)
        if schema_version is not None and (builtins.type(schema_version) is not int or not 0 <= schema_version < 2**63):
            raise InvalidArgument("schema_version must be a whole number, 0 or more")
        self.name: Final = name
        self._session = session
        self._type = type
        self._conversion = session.conversion(type)
        self._schema_version = schema_version
        self._saver = Saver(session, name, self._conversion, schema_version)

    def __repr__(self) -> str:
        return f"Thread({quoted(self.name)})"

    # -- saving -----------------------------------------------------------------------------------------------------

    def save(
        self,
        state: Any,
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
        expect: Expect = None,
    ) -> Checkpoint:
        """Store `state` as the thread's new head and return its checkpoint, without the state.

        When it returns, the checkpoint is durable. `step` goes on from the head if not given. Raises Unsupported or
        TooLarge for a state that cannot be stored, Conflict if the thread is not where it is expected to be: nothing
        is stored then, and the head stays what it was. OutcomeUnknown if the store failed in the middle.
        """
        given = {
            "step": step,
            "label": label,
            "tags": tags,
            "metadata": metadata,
            "status": status,
            "reason": reason,
            "trigger": trigger,
            "agent": agent,
            "usage": usage,
            "resume_hint": resume_hint,
        }
        plain, details = self._saver.request(state, given)
        return self._saver.save(plain, details, expect)

    # -- reading ----------------------------------------------------------------------------------------------------

    def latest(self, *, fallback: bool = False) -> Checkpoint | None:
        """The head with its state, or None if the thread was never saved.

        Damaged if its bytes are not what was saved. With `fallback` the newest undamaged ancestor is returned instead;
        its `skipped` says what was passed over and why.
        """
        observer = self._session.observer
        if observer is None:
            return self._latest(fallback)
        with observer.loading(self.name) as loading:
            found = self._latest(fallback)
            loading.tell(step=None if found is None else found.step)
            return found

    def _latest(self, fallback: bool) -> Checkpoint | None:
        with self._saver.line:
            for _ in range(RACES_MAX):
                try:
                    thread = self._session.store.thread(self.name)
                except Damaged as damage:
                    if not fallback or damage.known is None:
                        raise
                    return self._newest_undamaged(damage.known, Skipped("", 0, 0, str(damage)))
                if thread is None:
                    self._saver.see(None)
                    return None
                try:
                    return self._load_head(thread)
                except Damaged:
                    now = self._session.store.thread(self.name)
                    if now is not None and now.position == thread.position:
                        if not fallback:
                            raise
                        return self._newest_undamaged(thread)
        raise Conflict(f"thread {quoted(self.name)}: it moved {RACES_MAX} times while it was being read")

    def _load_head(self, thread: ThreadRow) -> Checkpoint:
        number, seq = thread.position.thread, thread.position.head
        row = self._saver.head_row(thread)
        base = self._session.bases.get(number, seq)
        if base is None:
            base = load_base(self._session.store, number, row)
            self._session.bases.put(number, base)
        self._saver.see(Head.of(thread.position, row))
        return metas.checkpoint_of(self.name, row, self._state(row, state_of(self._session.store, base)))

    def _newest_undamaged(self, thread: ThreadRow, *lost: Skipped) -> Checkpoint:
        number = thread.position.thread
        return newest_undamaged(self._session.store, thread, lambda row: self._checkpoint(number, row), *lost)

    def load(self, ref: Ref, *, partial: bool = False) -> Checkpoint:
        """The checkpoint that `ref` names, with its state. NotFound if there is none.

        A reference is an id or enough of one, "@12" (the newest of step 12), "@-1" (the head), "@-2" (the one before
        it), "@label", or a Checkpoint. Damaged if its bytes are not what was saved. With `partial` a state of which
        only something is lost is given all the same, plain: a Lost stands in each such place, `lost` lists them.
        """
        observer = self._session.observer
        if observer is None:
            return self._load(ref, partial)
        with observer.loading(self.name) as loading:
            found = self._load(ref, partial)
            loading.tell(step=found.step)
            return found

    def _load(self, ref: Ref, partial: bool) -> Checkpoint:
        thread = self._thread_of(ref)
        number, row = thread.position.thread, find_row(self._session.store, thread, ref)
        try:
            return self._checkpoint(number, row)
        except Damaged:
            state, lost = salvaged(self._session.store, number, row) if partial else (None, ())
            if not lost or isinstance(state, Lost):
                raise
            return replace(metas.checkpoint_of(self.name, row, state), lost=lost)

    def head(self) -> Checkpoint | None:
        """The head without its state, or None."""
        row = self._saver.current_row()
        return None if row is None else metas.checkpoint_of(self.name, row)

    def step(self) -> int:
        """The head's step; 0 if the thread was never saved."""
        thread = self._session.store.thread(self.name)
        return 0 if thread is None else thread.summary.step

    def count(self) -> int:
        """How many checkpoints the thread has."""
        thread = self._session.store.thread(self.name)
        return 0 if thread is None else thread.count

    def history(
        self,
        limit: int | None = None,
        before: Ref | None = None,
        label: str | None = None,
        tag: str | None = None,
        status: str | None = None,
        *,
        skip_damaged: bool = False,
    ) -> Iterator[Checkpoint]:
        """The thread's checkpoints, newest first, without states; `before` a checkpoint to get the next page.

        Reads page by page and holds nothing open in between. A thread never saved has an empty history. Those that
        cannot be read are passed over; once all others were given, Damaged is raised, unless `skip_damaged`.
        """
        return passing_over(self.name, self._listed(limit, before, label, tag, status), skip_damaged=skip_damaged)

    def _listed(
        self, limit: int | None, before: Ref | None, label: str | None, tag: str | None, status: str | None
    ) -> Iterator[Checkpoint | Damaged]:
        checked_limit(limit)
        metas.checked_text("label", label)
        metas.checked_text("tag", tag)
        if status is not None:
            metas.checked_status(status)
        damages: list[Damaged] = []
        try:
            thread = self._session.store.thread(self.name)
        except Damaged as damage:
            # Its newest record is lost: what is there can be listed, but nothing is known to be the newest.
            if damage.known is None:
                raise
            thread = damage.known
            damages.append(damage)
        if thread is None:
            if before is not None:
                raise _no_thread(self.name)
            return iter(())
        at = None if before is None else seq_before(self._session.store, thread, before)
        found = checkpoints(self._session.store, thread, limit=limit, before=at, label=label, tag=tag, status=status)
        return chain(damages if at is None else (), found)

    def find(self, label: str | None = None, tag: str | None = None, status: str | None = None) -> Checkpoint | None:
        """The newest checkpoint that matches all that is given, without its state, or None."""
        if label is None and tag is None and status is None:
            raise InvalidArgument("find needs a label, a tag or a status")
        return next(whole(self._listed(1, None, label, tag, status)), None)

    def diff(self, a: Ref, b: Ref) -> Diff:
        """What changed from checkpoint `a` to `b`: paths added, removed, changed."""
        return diff(self._plain_state(a), self._plain_state(b))

    def _plain_state(self, ref: Ref) -> Any:
        """The state of a checkpoint as it is stored, without the thread's type."""
        thread = self._thread()
        row = find_row(self._session.store, thread, ref)
        return self._plain(thread.position.thread, row)

    # -- moving -----------------------------------------------------------------------------------------------------

    def rewind(self, ref: Ref, *, past_effects: bool = False) -> Checkpoint:
        """Make an earlier checkpoint the head and return it, without its state. Nothing is deleted.

        Conflict if the thread is not where this handle last saw it. EffectsAhead if its runs did what cannot be undone
        after that checkpoint, unless `past_effects`: the world does not rewind with the thread.
        """
        with self._saver.line:
            thread = self._thread()
            row = find_row(self._session.store, thread, ref)
            head = self._saver.head
            if head is None:
                raise Conflict(
                    f"thread {quoted(self.name)} was created by somebody else; latest() shows where it is now"
                )
            meta = metas.decode(row)
            if not past_effects:
                require_none_ahead(self._session.store, thread, row)
            store, summary = self._session.store, summary_of(row, meta)
            position = unless_dead(
                store, head.position.thread, lambda: store.rewind(head.position, to=row.seq, summary=summary)
            )
            self._saver.see(Head.of(position, row))
            return metas.checkpoint_of(self.name, row)

    def fork(self, name: str, *, at: Ref = "@-1", state: Any = None) -> Thread:
        """Begin a thread at a checkpoint of this one; nothing is copied. `state` begins it at an edited state instead.

        AlreadyExists if there is a thread of that name.
        """
        forked = Thread(self._session, name, self._type, self._schema_version)
        thread = self._thread()
        row = find_row(self._session.store, thread, at)
        origin = thread.position.thread
        # Nothing is migrated where nothing is copied: then the fork begins with a state of the version it had.
        details = fork_details(row, None if state is None else self._schema_version)
        if state is None:
            commit = fork_of(name, row, origin, details, self._session.store.hashing)
        else:
            commit = save_of(
                name,
                self._session.redaction.restorable(self._conversion.to_plain(state), self._conversion.from_plain),
                details,
                expect=None,
                parent=Parent(origin, row.seq, row.id, row.digest, row.step),
                base=load_base(self._session.store, 0, seen_from_fork(row, origin)),
                size_limit=self._session.max_state_bytes,
                hashing=self._session.store.hashing,
            ).commit
        try:
            position = self._session.store.commit(commit)
        except OutcomeUnknown as error:
            error.checkpoint = metas.checkpoint_of(name, commit.row)
            raise
        except Conflict as conflict:
            if self._session.store.thread(name) is not None:
                raise AlreadyExists(f"there is a thread {quoted(name)}; fork under another name") from conflict
            raise
        forked._saver.see(Head.of(position, commit.row))
        return forked

    # -- removing ---------------------------------------------------------------------------------------------------

    def delete(self, ref: Ref) -> None:
        """Delete one checkpoint; others keep everything they need. Protected if it is the head.

        Its space is given back by the next `prune` or `hf.optimize()`.
        """
        thread = self._thread()
        row = find_row(self._session.store, thread, ref)
        self._session.store.delete(thread.position.thread, (row.seq,))

    def drop(self) -> None:
        """Delete the whole thread. Its forks keep what they share with it."""
        with self._saver.line:
            thread = self._thread()
            store, number = self._session.store, thread.position.thread
            unless_dead(store, number, lambda: store.drop(number))
            self._session.bases.forget(thread.position.thread)
            self._saver.see(None)

    def prune(self, retention: Retention, *, dry_run: bool = False) -> Pruned:
        """Delete the checkpoints that `retention` does not keep, and the cells that only they used; says which.

        Shared values that nobody names any more go with the next `hf.optimize()`, which looks at all threads.
        """
        if not isinstance(retention, Retention):
            raise InvalidArgument("prune takes a holdfast.Retention")
        thread = self._thread()
        number = thread.position.thread
        found = removable(
            retention,
            whole(self._listed(None, None, None, None, None)),
            head=thread.position.head,
            origins=self._fork_origins(number),
            now=datetime.now(UTC),
        )
        if not dry_run:
            remove(self._session.store, number, [checkpoint.seq for checkpoint in found])
        return Pruned(thread=self.name, removed=tuple(found), kept=thread.count - len(found), dry_run=dry_run)

    def _fork_origins(self, number: int) -> set[int]:
        firsts = (self._session.store.checkpoint(fork, 1) for fork in self._session.store.forks(number))
        return {
            row.parent[1] for row in firsts if row is not None and row.parent is not None and row.parent[0] == number
        }

    # -- inside -----------------------------------------------------------------------------------------------------

    def _thread(self) -> ThreadRow:
        thread = self._session.store.thread(self.name)
        if thread is None:
            raise _no_thread(self.name)
        return thread

    def _thread_of(self, ref: Ref) -> ThreadRow:
        """The thread, for who looks for a checkpoint of it: an id names one whatever became of the newest record."""
        try:
            return self._thread()
        except Damaged as damage:
            text = ref.id if isinstance(ref, Checkpoint) else ref
            if damage.known is None or type(text) is not str or text.startswith("@"):
                raise
            known: ThreadRow = damage.known
            return known

    def _checkpoint(self, number: int, row: CheckpointRow) -> Checkpoint:
        return metas.checkpoint_of(self.name, row, self._state(row, self._plain(number, row)))

    def _plain(self, number: int, row: CheckpointRow) -> Any:
        store = self._session.store
        base = self._session.bases.get(number, row.seq)
        try:
            return state_of(store, base or load_base(store, number, row))
        except Damaged:
            now = store.checkpoint(number, row.seq)
            if now is None or now.deleted:
                raise NotFound(f"checkpoint {to_text(row.id)} was deleted while it was being read") from None
            raise

    def _state(self, row: CheckpointRow, plain: Any) -> Any:
        """A stored state as this thread's user expects it: of the schema version, then in the type, they named."""
        return self._conversion.from_plain(self._migrated(row, plain))

    def _migrated(self, row: CheckpointRow, plain: Any) -> Any:
        stored = metas.decode(row).schema_version
        return self._session.migrations.migrated(self.name, plain, stored, self._schema_version)

    def _require_compatible(self) -> None:
        row = None if self._schema_version is None else self._saver.current_row()
        if row is not None and metas.decode(row).schema_version != self._schema_version:
            self._migrated(row, self._plain(self._thread().position.thread, row))


def checked_name(name: object) -> None:
    if type(name) is not str or not name:
        raise InvalidArgument("a thread's name is a text that is not empty")


def checked_limit(limit: int | None) -> None:
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidArgument("limit must be a whole number, 0 or more")


def _no_thread(name: str) -> NotFound:
    return NotFound(f"there is no thread {quoted(name)}; hf.threads() lists what there is")


def saver_of(thread: Thread) -> Saver:
    """For the async view, which saves in two halves."""
    return thread._saver


def require_compatible(thread: Thread) -> None:
    """Incompatible if the head's state cannot be had in the thread's schema version. For runs, before they claim."""
    thread._require_compatible()
