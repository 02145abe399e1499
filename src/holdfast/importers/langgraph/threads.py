"""Import the threads of LangGraph. Each namespace becomes a thread, in the form that `HoldfastSaver` uses."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

from msgspec.structs import replace

from holdfast.adapters.langgraph.carrying import (
    Foreign,
    carry,
    carry_writes,
    differences,
    early_writes,
    stored_writes,
    unlike,
)
from holdfast.adapters.langgraph.core import Core
from holdfast.adapters.langgraph.naming import track_name
from holdfast.adapters.langgraph.notes import Note, note_of
from holdfast.adapters.langgraph.recent import Recent
from holdfast.adapters.langgraph.track import Track, View
from holdfast.adapters.langgraph.written import Write
from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers.frame import SourceThread, Tally, Unusable
from holdfast.importers.langgraph.database import Database
from holdfast.stores.contract import Store

_REINDEX: Final = 1000  # checkpoints after which the index of a track is rebuilt


class LangGraphSource:
    """A LangGraph database, and the store that it is imported into."""

    def __init__(self, database: Database, hf: Holdfast | None) -> None:
        self._database = database
        self._core = None if hf is None else Core(hf)
        self._tracks: Generator[tuple[object, object]] | None = None

    def size(self) -> int:
        return self._database.size()

    def threads(self) -> Iterator[SourceThread]:
        self._tracks = self._database.tracks()
        for thread_id, namespace in self._tracks:
            texts = (thread_id, namespace) if isinstance(thread_id, str) and isinstance(namespace, str) else ("", "")
            yield LangGraphThread(self._database, self._core, *texts)

    def close(self) -> None:
        # The generator holds a cursor open if the import ended early.
        if self._tracks is not None:
            self._tracks.close()
        self._database.close()


class LangGraphThread:
    """One namespace of a thread.

    Checkpoints are recognised by their ids, and stored ones are not stored again. A thread that was continued in this
    store after the import is not changed.
    """

    def __init__(self, database: Database, core: Core | None, thread_id: str, namespace: str) -> None:
        self._database = database
        self._core = core
        self._thread_id = thread_id
        self._namespace = namespace
        self._ids: dict[str, str | None] = {}
        self._skipped: set[str] = set()
        # Not the core's own track, so that its index is freed with this thread.
        self._track = None if core is None else Track(core.context, thread_id, namespace)

    @property
    def name(self) -> str:
        return track_name(self._thread_id, self._namespace)

    # -- moving -----------------------------------------------------------------------------------------------------

    def move(self, tally: Tally) -> None:
        if not self._thread_id:
            raise Unusable("its thread id is empty or not a string")
        self._ids = self._database.ids(self._thread_id, self._namespace)
        stored = self._stored_ids()
        went_on = bool(stored - self._ids.keys())
        for number, id in enumerate(parents_first(self._ids), 1):
            if id in stored:
                tally.present()
                continue
            if went_on:
                self._skip(tally, id, "the thread was continued in this store after the import; nothing was added")
                continue
            try:
                self._move(tally, id)
            except (Unusable, InvalidArgument) as error:
                self._skip(tally, id, str(error))
            if self._track is not None and number % _REINDEX == 0:
                self._track.reindex()
        if not went_on:
            self._point(tally)
            self._move_early(tally)  # after _point, because early writes are stored with the head

    def _move(self, tally: Tally, id: str) -> None:
        foreign = self._read(tally, id)
        if foreign.parent is not None and foreign.parent not in self._ids:
            tally.remark(f"checkpoint {id}", f"its parent {foreign.parent} is not in the source")
        count = len(foreign.writes)
        if self._core is not None and self._track is not None and not tally.dry_run:
            carry(self._track, foreign)
        tally.moved(count)

    def _skip(self, tally: Tally, id: str, reason: str) -> None:
        self._skipped.add(id)
        tally.skip_checkpoint(id, reason)

    def _read(self, tally: Tally | None, id: str) -> Foreign:
        """A checkpoint with its writes. Unreadable writes are reported if `tally` is given."""
        foreign = self._database.checkpoint(self._thread_id, self._namespace, id)
        return replace(foreign, writes=self._writes(tally, id))

    def _writes(self, tally: Tally | None, id: str) -> list[Write]:
        writes, bad = self._database.writes(self._thread_id, self._namespace, id)
        if tally is not None:
            for which, reason in bad:
                tally.skip(f"checkpoint {id}, write {which}", reason)
        return writes

    def _move_early(self, tally: Tally) -> None:
        """Import writes whose checkpoint is not in the source: it was not saved yet, or was deleted."""
        early = self._early()
        for id in self._orphans():
            writes = self._writes(tally, id)
            if self._track is not None:
                writes = unlike(early.get(id, []), writes, self._track.placer.context.redaction)
            if writes:
                tally.moved_writes(len(writes))
                if self._core is not None and self._track is not None and not tally.dry_run:
                    carry_writes(self._core, self._track, id, writes)

    def _orphans(self) -> list[str]:
        return sorted(self._database.owners(self._thread_id, self._namespace) - self._ids.keys())

    def _point(self, tally: Tally) -> None:
        """Make the latest checkpoint the head. It may not be yet if a child has a smaller id than its parent."""
        track = self._track
        if track is None or tally.dry_run:
            return
        with track.line:
            view = track.look()
            row = None if view.tip is None else track.row_of(view, view.tip)
            if row is not None and view.is_newest and view.note is not None and view.note.id != view.tip:
                track.point(row)

    # -- checking ---------------------------------------------------------------------------------------------------

    def check(self, tally: Tally) -> None:
        core, track = self._core, self._track
        if core is None or track is None:
            return
        seen: set[str] = set()
        recent: Any = Recent(track.store)
        went_on = bool(self._stored_ids() - self._ids.keys())
        for note in self._notes():
            if note.id is None or note.id in seen:
                continue
            seen.add(note.id)
            if note.id in self._ids and note.id not in self._skipped:
                self._check(core, track, note, recent, tally, went_on=went_on)
                tally.checked()
        for id in self._ids.keys() - seen - self._skipped:
            tally.differ(f"checkpoint {id}", "it is missing in the store")
        if not went_on:
            early = self._early()
            for id in self._orphans():
                if unlike(early.get(id, []), self._writes(None, id), track.placer.context.redaction):
                    tally.differ(f"checkpoint {id}", "differs from the source: its writes")

    def _check(self, core: Core, track: Track, note: Note, recent: Store, tally: Tally, *, went_on: bool) -> None:
        id, redaction = note.id or "", track.placer.context.redaction
        try:
            foreign = self._read(None, id)
        except Unusable as error:
            tally.skip(f"checkpoint {id}", f"it is stored, but was not checked: {error}")
            return
        with track.line:
            view = track.view()
            row = None if view.position is None else track.placer.row(view.position.thread, note.seq)
            held = None if row is None else track.hold(view, row, recent)
        if held is None:
            tally.differ(f"checkpoint {id}", "it is missing in the store")
            return
        for what in differences(held, foreign, redaction):
            tally.differ(f"checkpoint {id}", f"differs from the source: {what}")
        stored = stored_writes(held)
        missing = unlike(stored, foreign.writes, redaction)
        if not missing:
            return
        places = {(write[0], write[2]) for write in foreign.writes}
        if went_on or any((write[0], write[2]) not in places for write in stored):
            # The thread was continued here: special writes (negative index) may differ, those of nodes may not.
            missing = [write for write in missing if write[2] >= 0]
            if missing:
                tally.differ(f"checkpoint {id}", "differs from the source: its writes")
            return
        # Writes were added to this checkpoint in the source after the import.
        known = {(write[0], write[2]) for write in stored}
        added = [write for write in missing if write[2] < 0 or (write[0], write[2]) not in known]
        if len(added) < len(missing):
            tally.differ(f"checkpoint {id}", "differs from the source: its writes")
        if added:
            tally.moved_writes(len(added))
            carry_writes(core, track, id, added)

    # -- the store --------------------------------------------------------------------------------------------------

    def _view(self) -> View | None:
        """A view of the stored thread. InvalidArgument if it is not a LangGraph thread."""
        if self._track is None:
            return None
        with self._track.line:
            return self._track.look()

    def _notes(self) -> Iterator[Note]:
        """The notes of all rows, newest first."""
        view, track = self._view(), self._track
        if track is None or view is None or view.position is None:
            return
        for row in track.placer.rows(view.position.thread, 0):
            note = note_of(row)
            if note is not None:
                yield note

    def _stored_ids(self) -> set[str]:
        return {note.id for note in self._notes() if note.id is not None}

    def _early(self) -> dict[str, list[Write]]:
        view, track = self._view(), self._track
        if track is None or view is None or view.row is None:
            return {}
        with track.line:
            return early_writes(track.hold(view, view.row))


def parents_first(ids: dict[str, str | None]) -> Iterator[str]:
    """Sort checkpoints by id, but each after its parent: the clocks of two hosts may disagree."""
    done: set[str] = set()
    for id in sorted(ids):
        waiting: list[str] = []
        each: str | None = id
        # A cycle of parents is cut where it was entered.
        while each is not None and each in ids and each not in done:
            done.add(each)
            waiting.append(each)
            each = ids[each]
        yield from reversed(waiting)
