"""Saving to one thread: what a handle has seen of it, and the way from a state to an acknowledged checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, final

from msgspec.structs import replace

from holdfast.errors import AlreadyExists, Conflict, Damaged, InvalidArgument, LeaseHeld, OutcomeUnknown
from holdfast.identity import to_text
from holdfast.records import Checkpoint
from holdfast.state.base import Base
from holdfast.state.loading import load_base
from holdfast.stores.contract import CheckpointRow, Commit, Position, ThreadRow
from holdfast.stores.running import EffectRow, RunRow
from holdfast.threads import meta as metas
from holdfast.threads.freeing import unless_dead
from holdfast.threads.line import RACES_MAX
from holdfast.threads.references import shown
from holdfast.threads.saving import Details, Head, Save, checked_details, save_of
from holdfast.threads.session import Conversion, Session


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
        raise Conflict(f"thread {shown(self._name)}: it moved {RACES_MAX} times while it was being read")

    def head_row(self, thread: ThreadRow) -> CheckpointRow:
        row = self._session.store.checkpoint(thread.position.thread, thread.position.head)
        if row is None or row.deleted:
            raise Damaged(f"thread {shown(self._name)}: checkpoint {thread.position.head}, its head, is missing")
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
        raise Conflict(f"thread {shown(self._name)}: other writers were faster {RACES_MAX} times in a row")

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
                    f"thread {shown(self._name)} is being run by another worker, and nothing was stored; "
                    "wait for it to end"
                ) from held
            except Conflict as conflict:
                if save.commit.expect is None:
                    raise AlreadyExists(
                        f"there is a thread {shown(self._name)} already, and nothing was stored; latest() shows it"
                    ) from conflict
                raise Conflict(
                    f"thread {shown(self._name)} is not where this handle last saw it, and nothing was stored; "
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
                f"thread {shown(self._name)} has a run, so its steps only grow; leave step= away, or rewind it"
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
            raise Conflict(f"thread {shown(self._name)} {found}, not {shown(wanted)}; nothing was stored")
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
