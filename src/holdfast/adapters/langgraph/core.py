"""What a saver and its clones share: the handle, the tracks, and what was handed out."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.channels import Memory, Templates
from holdfast.adapters.langgraph.naming import of_track, track_name, tracks_prefix
from holdfast.adapters.langgraph.notes import note_of
from holdfast.adapters.langgraph.ordering import Arrivals
from holdfast.adapters.langgraph.track import Track
from holdfast.handle import Holdfast
from holdfast.threads.session import Session

_TRACKS_MAX: Final = 512
_HANDED_MAX: Final = 10_000
_SERDES_MAX: Final = 8
_PAGE: Final = 500


How: TypeAlias = Literal["latest", "asked", "stored"]


class Handed:
    """Which checkpoints went through this saver, and how: handed out as the latest, asked for by id, or stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str | None], How] = OrderedDict()

    def note(self, track: str, id: str | None, how: How) -> None:
        with self._lock:
            self._known.pop((track, id), None)
            self._known[track, id] = how
            if len(self._known) > _HANDED_MAX:
                self._known.popitem(last=False)

    def is_overtaken(self, track: str, parent: str | None, tip: str | None, *, may_ask: bool) -> bool:
        """Whether somebody else went on from `parent`, which this saver's caller takes for the latest.

        It was handed out as that; or it was stored by this saver, which knows nothing of what is the latest now. Who
        asked for it by id wants a fork, and so does who stored both. Without `may_ask` it was another who asked.
        """
        with self._lock:
            how = self._known.get((track, parent))
            if how == "asked":
                return not may_ask
            return how == "latest" or (how == "stored" and (track, tip) not in self._known)

    def renew(self) -> None:
        """After fork(), in the child: whoever held the lock is not here to release it."""
        self._lock = threading.Lock()


class Core:
    """Shared by the clones of one saver. Any thread may use it."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf: Final = hf
        self.memory: Final = Memory()
        self.handed: Final = Handed()
        self.arrivals: Final = Arrivals()
        self._lock = threading.Lock()
        self._tracks: OrderedDict[str, Track] = OrderedDict()
        self._templates: list[tuple[SerializerProtocol, Templates]] = []
        _cores.add(self)

    @property
    def session(self) -> Session:
        return self.hf._session

    def track(self, thread_id: str, namespace: str) -> Track:
        name = track_name(thread_id, namespace)
        with self._lock:
            track = self._tracks.pop(name, None)
            if track is None:
                track = Track(self.session, thread_id, namespace)
            self._tracks[name] = track
            while len(self._tracks) > _TRACKS_MAX:
                self._tracks.popitem(last=False)
            return track

    def templates(self, serde: SerializerProtocol) -> Templates:
        """The messages that this serde decoded: another may allow fewer types."""
        with self._lock:
            for known, templates in self._templates:
                if known is serde:
                    return templates
            self._templates = [(serde, Templates()), *self._templates[: _SERDES_MAX - 1]]
            return self._templates[0][1]

    def tracks_of(self, thread_id: str) -> list[Track]:
        """The tracks of a thread, the root namespace first."""
        names = [track_name(thread_id, "")] if self.session.store.thread(track_name(thread_id, "")) else []
        names += self._names(tracks_prefix(thread_id))
        return [self.track(*of_track(name)) for name in names]

    def all_tracks(self) -> Iterator[Track]:
        """Every track there is, in order of their names; threads that are not LangGraph's are passed over."""
        for name in self._names(""):
            track = self.track(*of_track(name))
            if track.name == name and self._is_ours(track):
                yield track

    def _is_ours(self, track: Track) -> bool:
        thread = track.placer.thread()
        row = None if thread is None else track.placer.row(thread.position.thread, thread.position.head)
        return row is not None and note_of(row) is not None

    def _names(self, prefix: str) -> Iterator[str]:
        after: str | None = None
        self.session.check_open()
        while page := self.session.store.threads(prefix=prefix, after=after, limit=_PAGE):
            yield from (row.name for row in page)
            after = page[-1].name

    def renew(self) -> None:
        """After fork(), in the child: whoever held a lock is not here to release it."""
        self._lock = threading.Lock()
        self.memory.renew()
        self.handed.renew()
        self.arrivals.renew()


_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _renew() -> None:
    for core in list(_cores):
        core.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
