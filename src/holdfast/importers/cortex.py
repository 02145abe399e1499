"""Checkpoints of cortexai-agents (rust-ai-agents), written as JSON: each an object of `metadata` and `state`.

Its store is memory only, so how they came into a file was up to its users. Parents come before their children, whatever
the order in the file; apart from that, it stays. Rewinding deleted what came later, so the last one is gone on from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers.cortex_file import Piece, Pieces, open_pieces
from holdfast.importers.foreign import Aside, ForeignSource, ForeignThread
from holdfast.importers.foreign_file import Fields, as_object, moment_of_seconds
from holdfast.importers.foreign_record import Entry, Record, Unreadable
from holdfast.importers.frame import Unusable
from holdfast.importers.options import Options

_MISSING: Final = object()


def open_cortex(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """A file of checkpoints. NotFound if there is none, InvalidArgument if there is no checkpoint of cortex in it."""
    pieces = open_pieces(path, options.max_file_bytes)
    try:
        return _indexed(path, pieces, hf)
    except Unusable as error:
        pieces.close()
        raise InvalidArgument(f"{path}: {error}") from None
    except BaseException:
        pieces.close()
        raise


def _indexed(path: str, pieces: Pieces, hf: Holdfast | None) -> ForeignSource:
    """The threads of a file. All of it is read once for that, and what is kept is where each checkpoint is."""
    found: dict[str, list[_Place]] = {}
    strays: list[Entry] = []
    for piece in pieces.all():
        try:
            place = _placed(piece)
        except Unusable as error:
            strays.append(Unreadable(piece.item, str(error)))
        else:
            found.setdefault(place.thread, []).append(place)
    if not found:
        why = f": {strays[0].reason}" if strays and isinstance(strays[0], Unreadable) else ""
        raise InvalidArgument(f"{path} holds no checkpoint of cortex, an object of metadata and state{why}")
    threads: list[ForeignThread] = [_Thread(pieces, name, places) for name, places in found.items()]
    if strays:
        threads.append(Aside(path, strays))
    return ForeignSource("cortex", hf, threads, sum(map(len, found.values())), pieces.close)


class _Place(msgspec.Struct, frozen=True):
    """Where a checkpoint is, and what it follows."""

    thread: str
    id: str
    parent: str | None
    item: str
    place: Any


def _placed(piece: Piece) -> _Place:
    if isinstance(piece.said, Unusable):
        raise piece.said
    metadata = Fields(as_object(as_object(piece.said, "it").get("metadata"), "its metadata"))
    return _Place(
        metadata.text("thread_id"), metadata.text("id"), metadata.text_or_none("parent_id"), piece.item, piece.place
    )


class _Thread:
    """See `ForeignThread`."""

    def __init__(self, pieces: Pieces, name: str, places: list[_Place]) -> None:
        self.name: Final = name
        self._pieces = pieces
        self._places = places

    def records(self) -> Iterator[Entry]:
        later = {place.id for place in self._places}
        for place in _parents_first(self._places):
            try:
                yield self._record(self._pieces.at(place.place), later)
            except Unusable as error:
                yield Unreadable(f"{place.item}, checkpoint {place.id}", str(error))
            later.discard(place.id)

    def _record(self, said: object, later: set[str]) -> Record:
        members = Fields(as_object(said, "it"))
        metadata = Fields(as_object(members.take("metadata"), "its metadata"))
        state = members.take("state", _MISSING)
        if state is _MISSING:
            raise Unusable("it has no state")
        metadata.take("thread_id")
        seconds = metadata.take("created_at")
        created_at = moment_of_seconds(seconds)
        parent = metadata.text_or_none("parent_id")
        remarks: list[str] = []
        kept: dict[str, Any] = {}
        if parent in later:
            remarks.append("it is an ancestor of its own parent; it stands behind the one before it")
            kept["parent_id"], parent = parent, None
        if created_at is None:
            kept["created_at"] = seconds
        custom = metadata.take("custom")
        return Record(
            id=metadata.text("id"),
            step=metadata.whole("step"),
            created_at=created_at,
            parent=parent,
            label=metadata.text_or_none("label") or None,
            tags=tuple(metadata.items("tags")),
            metadata={} if custom is None else as_object(custom, "its custom"),
            state=state,
            rest={**members.rest, **metadata.rest, **kept},
            remarks=tuple(remarks),
        )


def _parents_first(places: list[_Place]) -> Iterator[_Place]:
    """In the order of the file, but each behind its parent."""
    by_id: dict[str, int] = {}
    for number, place in enumerate(places):
        by_id.setdefault(place.id, number)
    done: set[int] = set()
    for number in range(len(places)):
        waiting: list[int] = []
        each: int | None = number
        # A circle of parents is cut where it was entered.
        while each is not None and each not in done:
            done.add(each)
            waiting.append(each)
            parent = places[each].parent
            each = None if parent is None else by_id.get(parent)
        yield from (places[found] for found in reversed(waiting))
