"""The state that a saver and its clones share: the handle, the tracks, caches, and the positions of runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast import forksafe
from holdfast.adapters.langgraph.channels import Memory, Templates
from holdfast.adapters.langgraph.naming import of_track, track_name, tracks_prefix
from holdfast.adapters.langgraph.notes import note_of
from holdfast.adapters.langgraph.ordering import Arrivals
from holdfast.adapters.langgraph.track import Track
from holdfast.handle import Holdfast
from holdfast.threads.context import Context

_TRACKS_MAX: Final = 512
_RUNS_MAX: Final = 50_000
_SERDES_MAX: Final = 8
_PAGE: Final = 500


class Standing(msgspec.Struct, frozen=True):
    """The position of a run in a track: a checkpoint that it read as the latest, or stored."""

    at: str | None
    is_stored: bool


class Runs:
    """The position of each run in each track, to detect that another run continued from the same checkpoint.

    LangGraph passes one metadata object through a whole run, so its identity identifies the run. A caller that passes
    no metadata may store two checkpoints with the same parent without a conflict.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: OrderedDict[tuple[str, str | None], None] = OrderedDict()
        self._known: OrderedDict[tuple[int, str], tuple[Any, Standing]] = OrderedDict()

    def note(self, config: RunnableConfig, track: str, at: str | None, *, is_stored: bool) -> None:
        """Record that a run read this checkpoint as the latest, or stored it."""
        run = config.get("metadata")
        with self._lock:
            self._known.pop((id(run), track), None)
            # The object is kept alive, because another one could get its id.
            self._known[id(run), track] = run, Standing(at, is_stored)
            if len(self._known) > _RUNS_MAX:
                self._known.popitem(last=False)

    def forget(self, config: RunnableConfig, track: str) -> None:
        """Forget the position of a run that stored a checkpoint which is not the latest; it may continue anywhere."""
        with self._lock:
            self._known.pop((id(config.get("metadata")), track), None)

    def stored(self, track: str, id: str) -> None:
        """Record that this saver stored a checkpoint, in any run."""
        with self._lock:
            self._stored[track, id] = None
            if len(self._stored) > _RUNS_MAX:
                self._stored.popitem(last=False)

    def is_overtaken(self, config: RunnableConfig, track: str, parent: str | None, tip: str | None) -> bool:
        """Whether a run continues from `parent` as the latest checkpoint, while another run has already done so."""
        standing = self.of(config, track)
        if standing is None or standing.at != parent or parent == tip:
            return False
        with self._lock:
            return "metadata" in config or not standing.is_stored or (track, tip) not in self._stored

    def of(self, config: RunnableConfig, track: str) -> Standing | None:
        with self._lock:
            known = self._known.get((id(config.get("metadata")), track))
            return None if known is None else known[1]

    def renew(self) -> None:
        """Replace the lock after fork(): the thread that held it does not exist in the child."""
        self._lock = threading.Lock()


class Core:
    """The shared state of a saver and its clones. Thread-safe."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf: Final = hf
        self.memory: Final = Memory()
        self.runs: Final = Runs()
        self.arrivals: Final = Arrivals()
        self._lock = threading.Lock()
        self._tracks: OrderedDict[str, Track] = OrderedDict()
        self._templates: list[tuple[SerializerProtocol, Templates]] = []
        forksafe.renew_in_child(self)

    @property
    def context(self) -> Context:
        return self.hf.context

    def track(self, thread_id: str, namespace: str) -> Track:
        name = track_name(thread_id, namespace)
        with self._lock:
            track = self._tracks.pop(name, None)
            if track is None:
                track = Track(self.context, thread_id, namespace)
            self._tracks[name] = track
            while len(self._tracks) > _TRACKS_MAX:
                self._tracks.popitem(last=False)
            return track

    def templates(self, serde: SerializerProtocol) -> Templates:
        """The cache of messages decoded by this serde. Another serde may allow fewer types."""
        with self._lock:
            for known, templates in self._templates:
                if known is serde:
                    return templates
            self._templates = [(serde, Templates()), *self._templates[: _SERDES_MAX - 1]]
            return self._templates[0][1]

    def tracks_of(self, thread_id: str) -> list[Track]:
        """The tracks of a thread, the root namespace first. Threads not written by LangGraph are skipped."""
        names = [track_name(thread_id, "")] if self.context.store.head(track_name(thread_id, "")) else []
        names += self._names(tracks_prefix(thread_id))
        tracks = [self.track(*of_track(name)) for name in names]
        return [track for track, name in zip(tracks, names, strict=True) if track.name == name and self._is_ours(track)]

    def all_tracks(self) -> Iterator[Track]:
        """All tracks, sorted by name. Threads not written by LangGraph are skipped."""
        for name in self._names(""):
            track = self.track(*of_track(name))
            if track.name == name and self._is_ours(track):
                yield track

    def _is_ours(self, track: Track) -> bool:
        head = track.placer.head()
        return head is not None and note_of(head.row) is not None

    def _names(self, prefix: str) -> Iterator[str]:
        after: str | None = None
        self.context.check_open()
        while page := self.context.store.threads(prefix=prefix, after=after, limit=_PAGE):
            yield from (row.name for row in page)
            after = page[-1].name

    def renew(self) -> None:
        """Replace the locks after fork(): the threads that held them do not exist in the child."""
        self._lock = threading.Lock()
        self.memory.renew()
        self.runs.renew()
        self.arrivals.renew()
