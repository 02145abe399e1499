"""A thread: the saved work of one agent under a name, and every verb on its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from holdfast.codec.typed import StateType
from holdfast.delta.load import load_base, state_of
from holdfast.delta.salvage import salvaged
from holdfast.errors import AlreadyExists, Conflict, Damaged, InvalidArgument, NotFound, OutcomeUnknown, Protected
from holdfast.ids import to_text
from holdfast.stores.contract import CheckpointRow, Position, ThreadRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.branches import fork_details, fork_of, seen_from_fork
from holdfast.threads.context import MAX_RETRIES, Context
from holdfast.threads.diff import diff
from holdfast.threads.effects import require_none_ahead
from holdfast.threads.history import checkpoints, newest_undamaged, until_damaged, without_damaged
from holdfast.threads.list_member import ListMember
from holdfast.threads.metadata import Parent, SeenHead
from holdfast.threads.refs import find_row, seq_before
from holdfast.threads.retention import Retention, removable, remove
from holdfast.threads.save import ANY, Expect, PendingSave, Saver, save_all, save_of, summary_of
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.types import Checkpoint, Diff, MissingValue, PruneResult, Skipped, Status, Usage

Ref: TypeAlias = str | Checkpoint


def checked_version(schema_version: int | None) -> int | None:
    """A schema version, or None. InvalidArgument if it is neither."""
    if schema_version is not None and (type(schema_version) is not int or not 0 <= schema_version < 2**63):
        raise InvalidArgument("schema_version must be a whole number, 0 or more")
    return schema_version


class Thread:
    """A thread object: reads and writes one thread. Get it from `hf.thread(name)`.

    It remembers the head that it last read or saved. A save or a rewind raises Conflict if another writer has changed
    the thread since. `latest()` reads the head again. The first save of a thread object that has not read the thread
    follows the head in the store.
    """

    def __init__(self, context: Context, name: str, type: Any = None, schema_version: int | None = None) -> None:
        checked_name(name)
        self.name: Final = name
        self._context = context
        self._type = type
        self._state_type = None if type is None else StateType(type)
        self._schema_version = checked_version(schema_version)
        self.saver = Saver(context, name, self._state_type, schema_version)

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
        past_effects: bool = False,
    ) -> Checkpoint:
        """Store `state` as the thread's new head and return its checkpoint, without the state.

        The checkpoint is durable when the call returns. Without `step` it gets the step of the head plus one. Raises
        Unsupported or TooLarge for a state that cannot be stored, LeaseHeld if a process runs the thread, and Conflict
        if another writer has changed the thread: then nothing is saved. Raises OutcomeUnknown if the store failed while
        it was writing.

        Raises EffectsAhead if the thread's run is unfinished and its open step has made an irreversible call. With
        `past_effects=True` the state is saved, and the run resumes from it without the result of that call.
        """
        request = self.saver.request(
            state,
            step=step,
            label=label,
            tags=tags,
            metadata=metadata,
            status=status,
            reason=reason,
            trigger=trigger,
            agent=agent,
            usage=usage,
            resume_hint=resume_hint,
        )
        prepare = partial(self.saver.prepare, request, expect)
        return save_all([PendingSave(self.saver, prepare, expect is ANY, past_effects)])[0]

    def append(
        self,
        path: str,
        items: list[Any],
        *,
        expect: Expect = None,
        unique: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Checkpoint | None:
        """Append items to the list under the key `path` of the state, without loading the state.

        The thread and the list are created if they are missing. Without `expect`, other writers may have changed the
        thread before. With `unique`, a second append with the same text does nothing and returns None: so the call can
        be repeated after a crash. `metadata` is that of the checkpoint, which `head()` reads without the state. The
        errors are those of `save`, and Damaged if the stored bytes are not those that were saved.
        """
        self._context.check_open()
        change = ListMember(self._context, self.saver, path).appended(items, expect, unique, metadata)
        return next(iter(save_all([change])), None)

    def pop(self, path: str, *, expect: Expect = None, unique: str | None = None) -> Any:
        """Remove the last item of the list under the key `path` of the state, and return it; None if there is none.

        With `unique`, a second call with the same text does nothing and returns None.
        """
        self._context.check_open()
        return next(iter(ListMember(self._context, self.saver, path).pop(expect, unique)), None)

    # -- reading ----------------------------------------------------------------------------------------------------

    def tail(self, path: str, n: int | None = None) -> list[Any]:
        """Return the last `n` items of the list under the key `path` of the state, oldest first; by default, all."""
        self._context.check_open()
        return ListMember(self._context, self.saver, path).tail(n)

    def latest(self, *, fallback: bool = False) -> Checkpoint | None:
        """Load the head with its state. Returns None if the thread was never saved.

        Raises Damaged if the stored bytes are not those that were saved. With `fallback` it returns the newest
        undamaged ancestor instead; its `skipped` lists the checkpoints passed over, with the reasons.
        """
        observer = self._context.observer
        if observer is None:
            return self._latest(fallback)
        with observer.loading(self.name) as loading:
            found = self._latest(fallback)
            loading.update(step=None if found is None else found.step)
            return found

    def _latest(self, fallback: bool) -> Checkpoint | None:
        damaged: Position | None = None
        with self.saver.lock:
            for _ in range(MAX_RETRIES):
                try:
                    head = self._context.store.head(self.name)
                except Damaged as damage:
                    if not fallback or damage.known is None:
                        raise
                    return self._newest_undamaged(damage.known, Skipped("", 0, 0, str(damage)))
                if head is None:
                    self.saver.remember(None)
                    return None
                try:
                    return self.saver.load_head(head)
                except Damaged:
                    # The cells of a head are swept if another writer moves the thread and deletes it meanwhile.
                    if damaged == head.thread.position:
                        if not fallback:
                            raise
                        return self._newest_undamaged(head.thread)
                    damaged = head.thread.position
        raise Conflict(
            f"thread {quoted(self.name)} was changed {MAX_RETRIES} times while it was being read. "
            "Nothing was changed by this call. Try again."
        )

    def _newest_undamaged(self, thread: ThreadRow, *lost: Skipped) -> Checkpoint:
        number = thread.position.thread
        return newest_undamaged(self._context.store, thread, lambda row: self._checkpoint(number, row), *lost)

    def load(self, ref: Ref, *, partial: bool = False) -> Checkpoint:
        """Load a checkpoint with its state. Raises NotFound if there is none.

        A reference is an id, its unique start or end, "@12" (the newest of step 12), "@-1" (the head), "@-2" (the one
        before it), "@label", or a Checkpoint. Raises Damaged if the stored bytes are not those that were saved. With
        `partial` it returns what can be read of a damaged state, as plain values: each unreadable value is replaced by
        a MissingValue, and `lost` lists them.
        """
        observer = self._context.observer
        if observer is None:
            return self._load(ref, partial)
        with observer.loading(self.name) as loading:
            found = self._load(ref, partial)
            loading.update(step=found.step)
            return found

    def _load(self, ref: Ref, partial: bool) -> Checkpoint:
        thread = self._thread_of(ref)
        number, row = thread.position.thread, find_row(self._context.store, thread, ref)
        try:
            return self._checkpoint(number, row)
        except Damaged:
            state, lost = salvaged(self._context.store, number, row) if partial else (None, ())
            if not lost or isinstance(state, MissingValue):
                raise
            return replace(metas.checkpoint_of(self.name, row, state), lost=lost)

    def head(self) -> Checkpoint | None:
        """Return the head without its state, or None if the thread was never saved."""
        head = self._context.store.head(self.name)
        return None if head is None else metas.checkpoint_of(self.name, head.row)

    def step(self) -> int:
        """Return the step of the head; 0 if the thread was never saved."""
        thread = thread_named(self._context.store, self.name)
        return 0 if thread is None else thread.summary.step

    def count(self) -> int:
        """Return the number of the thread's checkpoints."""
        thread = thread_named(self._context.store, self.name)
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
        """List the thread's checkpoints, newest first, without states.

        It reads page by page and keeps nothing open in between. Pass `before` to list only older checkpoints than that
        one. The history of a thread that was never saved is empty. Checkpoints that cannot be read are left out; after
        the last one, Damaged is raised unless `skip_damaged`.
        """
        return without_damaged(self.name, self._listed(limit, before, label, tag, status), skip_damaged=skip_damaged)

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
            thread = thread_named(self._context.store, self.name)
        except Damaged as damage:
            # The newest record of the thread is lost: its checkpoints can be listed, but a newer one may be missing.
            if damage.known is None:
                raise
            thread = damage.known
            damages.append(damage)
        if thread is None:
            if before is not None:
                raise _no_thread(self.name)
            return iter(())
        at = None if before is None else seq_before(self._context.store, thread, before)
        found = checkpoints(self._context.store, thread, limit=limit, before=at, label=label, tag=tag, status=status)
        return chain(damages if at is None else (), found)

    def find(self, label: str | None = None, tag: str | None = None, status: str | None = None) -> Checkpoint | None:
        """Return the newest checkpoint that matches all arguments, without its state, or None."""
        if label is None and tag is None and status is None:
            raise InvalidArgument("find needs a label, a tag or a status")
        return next(until_damaged(self._listed(1, None, label, tag, status)), None)

    def diff(self, a: Ref, b: Ref) -> Diff:
        """Compare the states of two checkpoints: the paths added, removed and changed from `a` to `b`."""
        return diff(self._plain_state(a), self._plain_state(b))

    def _plain_state(self, ref: Ref) -> Any:
        """The state of a checkpoint as it is stored, without the thread's type."""
        thread = self._thread()
        row = find_row(self._context.store, thread, ref)
        return self._plain(thread.position.thread, row)

    # -- moving -----------------------------------------------------------------------------------------------------

    def rewind(self, ref: Ref, *, past_effects: bool = False) -> Checkpoint:
        """Make an earlier checkpoint the head and return it, without its state. Nothing is deleted.

        Raises Conflict if another writer has changed the thread since this object last read it. Raises EffectsAhead if
        the thread's run made an irreversible call after that checkpoint, because a rewind does not undo it. With
        `past_effects=True` it rewinds anyway.
        """
        with self.saver.lock:
            thread = self._thread()
            row = find_row(self._context.store, thread, ref)
            head = self.saver.known_head
            if head is None:
                raise Conflict(
                    f"thread {quoted(self.name)} was created by another writer; nothing was changed. "
                    "Call latest() and try again."
                )
            meta = metas.decode(row)
            if not past_effects:
                require_none_ahead(self._context.store, thread, row)
            position = self._context.rewind(head.position, to=row.seq, summary=summary_of(row, meta))
            self.saver.remember(SeenHead.of(position, row, meta))
            return metas.checkpoint_from(self.name, row, meta)

    def fork(self, name: str, *, at: Ref = "@-1", state: Any = None) -> Thread:
        """Create a thread that starts at a checkpoint of this one, and return it. Nothing is copied.

        With `state` the new thread starts at that edited state instead. Raises AlreadyExists if there is a thread of
        that name.
        """
        context = self._context
        forked = Thread(context, name, self._type, self._schema_version)
        thread = self._thread()
        row = find_row(context.store, thread, at)
        origin = thread.position.thread
        # A state that is not copied is not migrated either: the fork has the schema version of its source.
        details = fork_details(row, None if state is None else self._schema_version)
        if state is None:
            commit, meta = fork_of(name, row, origin, details, context.store.hashing)
        else:
            try:
                base = load_base(context.store, 0, seen_from_fork(row, origin))
            except Damaged:
                self._require_there(origin, row)
                raise
            save = save_of(
                name,
                self.saver.plain(state),
                details,
                expect=None,
                parent=Parent.of(row, origin),
                base=base,
                size_limit=context.max_state_bytes,
                hashing=context.store.hashing,
            )
            commit, meta = save.commit, save.meta
        try:
            position = context.store.commit(commit)
        except OutcomeUnknown as error:
            error.checkpoint = metas.checkpoint_from(name, commit.row, meta)
            raise
        except Conflict as conflict:
            if context.store.head(name) is not None:
                raise AlreadyExists(
                    f"thread {quoted(name)} already exists; nothing was changed. Fork under another name."
                ) from conflict
            raise
        forked.saver.remember(SeenHead.of(position, commit.row, meta))
        return forked

    # -- removing ---------------------------------------------------------------------------------------------------

    def delete(self, ref: Ref) -> None:
        """Delete one checkpoint. The others keep all they need.

        Raises Protected if it is the head, or the checkpoint from which the thread's run resumes. The next
        `prune` or `hf.optimize()` frees its space.
        """
        thread = self._thread()
        row = find_row(self._context.store, thread, ref)
        if row.seq in self._boundaries(thread.position.thread):
            raise Protected(
                f"the run of thread {quoted(self.name)} will resume from that checkpoint; nothing was changed. "
                "Finish the run first, or rewind the thread."
            )
        self._context.store.delete(thread.position.thread, (row.seq,))

    def drop(self) -> None:
        """Delete the whole thread. Its forks keep what they share with it."""
        with self.saver.lock:
            self._context.drop(self._thread().position.thread)
            self.saver.remember(None)

    def prune(self, retention: Retention, *, dry_run: bool = False) -> PruneResult:
        """Delete the checkpoints that `retention` does not keep, and the cells that only they used.

        The result lists them. With `dry_run` nothing is deleted. The next `hf.optimize()` frees unused blobs.
        """
        if not isinstance(retention, Retention):
            raise InvalidArgument("prune takes a holdfast.Retention")
        thread = self._thread()
        number = thread.position.thread
        # Not later ones: a run may resume from a checkpoint that it made since.
        listed = until_damaged(self._listed(None, None, None, None, None))
        found = removable(
            retention,
            (checkpoint for checkpoint in listed if checkpoint.seq <= thread.position.last),
            head=thread.position.head,
            origins=self._fork_origins(number) | self._boundaries(number),
            now=datetime.now(UTC),
        )
        while not dry_run:
            try:
                remove(self._context.store, number, [checkpoint.seq for checkpoint in found])
                break
            except Protected:  # another writer has rewound the thread to one of them
                head = self._thread().position.head
                found = [checkpoint for checkpoint in found if checkpoint.seq != head]
        return PruneResult(thread=self.name, removed=tuple(found), kept=thread.count - len(found), dry_run=dry_run)

    def _boundaries(self, number: int) -> set[int]:
        """The seq of the checkpoint from which the thread's run resumes, if it is not the head."""
        run = self._context.store.run(number)
        return set() if run is None or run.boundary is None else {run.boundary.seq}

    def _fork_origins(self, number: int) -> set[int]:
        """The seqs of the checkpoints at which forks of this thread start."""
        firsts = (checkpoint_at(self._context.store, fork, 1) for fork in self._context.store.forks(number))
        return {
            row.parent[1] for row in firsts if row is not None and row.parent is not None and row.parent[0] == number
        }

    # -- inside -----------------------------------------------------------------------------------------------------

    def _thread(self) -> ThreadRow:
        thread = thread_named(self._context.store, self.name)
        if thread is None:
            raise _no_thread(self.name)
        return thread

    def _thread_of(self, ref: Ref) -> ThreadRow:
        """The thread in which to look for a checkpoint. An id can be found even if the thread's record is damaged."""
        try:
            return self._thread()
        except Damaged as damage:
            text = ref.id if isinstance(ref, Checkpoint) else ref
            if damage.known is None or type(text) is not str or text.startswith("@"):
                raise
            known: ThreadRow = damage.known
            return known

    def _checkpoint(self, number: int, row: CheckpointRow) -> Checkpoint:
        plain = self._plain(number, row)
        meta = metas.decode(row)
        return metas.checkpoint_from(self.name, row, meta, self.saver.restored(meta, plain))

    def _plain(self, number: int, row: CheckpointRow) -> Any:
        store = self._context.store
        base = self._context.bases.get(number, row.seq)
        try:
            return state_of(store, base or load_base(store, number, row, limit=self._context.max_state_bytes))
        except Damaged:
            self._require_there(number, row)
            raise

    def _require_there(self, number: int, row: CheckpointRow) -> None:
        """Raise NotFound if a checkpoint was deleted after it was found."""
        now = checkpoint_at(self._context.store, number, row.seq)
        if now is None or now.deleted:
            raise NotFound(
                f"checkpoint {to_text(row.id)} was deleted while it was being read; history() lists the others"
            ) from None


def checked_name(name: object) -> None:
    """Raise InvalidArgument unless `name` can be the name of a thread."""
    if type(name) is not str or not name:
        raise InvalidArgument("the name of a thread must be a non-empty string")


def checked_limit(limit: int | None) -> None:
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidArgument("limit must be a whole number, 0 or more")


def _no_thread(name: str) -> NotFound:
    return NotFound(f"there is no thread {quoted(name)}; hf.threads() lists all threads")
