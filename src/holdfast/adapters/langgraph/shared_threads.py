"""The threads of a saver, which its clones share, and listings of their checkpoints."""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from holdfast import forksafe
from holdfast.adapters.langgraph.checkpoint_format import (
    Note,
    checkpoint_id_of,
    metadata_of,
    namespaces_prefix,
    note_of,
    of_name,
    thread_id_of,
    thread_name,
)
from holdfast.adapters.langgraph.checkpoints import GraphThread
from holdfast.adapters.langgraph.graph_schema import Schema
from holdfast.adapters.langgraph.invocations import Invocations
from holdfast.adapters.langgraph.messages import MessageCache
from holdfast.adapters.langgraph.serde import Values
from holdfast.adapters.langgraph.stored import GraphHead, LatestReaders
from holdfast.delta.load import CellReader
from holdfast.handle import Holdfast
from holdfast.stores.contract import Block, Cells, Span
from holdfast.threads.context import Context

_THREADS_MAX: Final = 512
_PAGE: Final = 500

Listed: TypeAlias = tuple[str, GraphThread, Note]


class SharedThreads:
    """The state that a saver and its clones share. Thread-safe."""

    def __init__(self, hf: Holdfast, schema: Schema) -> None:
        self.hf: Final = hf
        self._schema = schema
        self.messages: Final = MessageCache()
        self.invocations: Final = Invocations(hf.context.at_close)
        self._lock = threading.Lock()
        self._threads: OrderedDict[tuple[str, str], GraphThread] = OrderedDict()
        self._readers: OrderedDict[tuple[str, str], LatestReaders] = OrderedDict()  # of threads that were dropped
        forksafe.renew_in_child(self)

    @property
    def context(self) -> Context:
        return self.hf.context

    def thread(self, thread_id: str, namespace: str) -> GraphThread:
        place = thread_id, namespace
        with self._lock:
            thread = self._threads.pop(place, None)
            if thread is None:
                readers = self._readers.pop(place, None) or LatestReaders()
                thread = GraphThread(self.context, thread_id, namespace, self.messages, self._schema, readers)
                self._make_room()
            self._threads[place] = thread
            return thread

    def _make_room(self) -> None:
        """Drop threads that are not in use, the least recently used first, if they are many or take many bytes."""
        size = sum(thread.size for thread in self._threads.values())
        limit = self.context.bases.limit
        while len(self._threads) >= _THREADS_MAX or size > limit:
            unused = next((each for each, one in self._threads.items() if not one.is_held), None)
            if unused is None:
                return
            dropped = self._threads.pop(unused)
            size -= dropped.size
            self._readers[unused] = dropped.readers  # a caller may have read it, and not stored yet
            if len(self._readers) > _THREADS_MAX:
                self._readers.popitem(last=False)

    def threads_of(self, thread_id: str) -> list[GraphThread]:
        """The namespaces of a thread, the root first. Threads not written by LangGraph are skipped."""
        root = thread_name(thread_id, "")
        names = [root] if self.context.store.head(root) else []
        return [*self._ours([*names, *self._names(namespaces_prefix(thread_id))])]

    def all_threads(self) -> Iterator[GraphThread]:
        """All namespaces of all threads, sorted by name. Threads not written by LangGraph are skipped."""
        return self._ours(self._names(""))

    def _ours(self, names: Iterator[str] | Sequence[str]) -> Iterator[GraphThread]:
        for name in names:
            thread = self.thread(*of_name(name))
            head = thread.placer.head() if thread.name == name else None
            if head is not None and note_of(head.row) is not None:
                yield thread

    def _names(self, prefix: str) -> Iterator[str]:
        after: str | None = None
        self.context.check_open()
        while page := self.context.store.threads(prefix=prefix, after=after, limit=_PAGE):
            yield from (row.name for row in page)
            after = page[-1].name

    # -- listings ---------------------------------------------------------------------------------------------------

    def list(
        self,
        values: Values,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, newest first. No lock or cursor is held between two of them."""
        left = limit
        read: dict[str, RecentCells] = {}
        for id, thread, note in self._listed(config, before):
            if left is not None and left <= 0:
                return
            if wanted and not _matches(note, wanted):
                continue
            cells = read.setdefault(thread.name, RecentCells(thread.store))
            found = thread.racing(lambda head: _read(values, thread, head, id, cells))  # noqa: B023 - called at once
            if found is not None:
                yield found
                if left is not None:
                    left -= 1

    def _listed(self, config: RunnableConfig | None, before: RunnableConfig | None) -> Iterator[Listed]:
        asked = None if config is None else checkpoint_id_of(config)
        bound = None if before is None else checkpoint_id_of(before)
        lists: list[list[Listed]] = []
        for thread in self._chosen(config):
            with thread.lock:
                head = thread.look()
                index = dict(thread.index(head))
                if head is not None:
                    thread.journal.look(head.position.thread)
            ids = index if asked is None else [asked] if asked in index else []
            chosen = sorted(ids if bound is None else [id for id in ids if id < bound], reverse=True)
            lists.append([(id, thread, index[id]) for id in chosen])
        return heapq.merge(*lists, key=lambda found: found[0], reverse=True)

    def _chosen(self, config: RunnableConfig | None) -> Iterator[GraphThread]:
        said: dict[str, Any] = {} if config is None else config.get("configurable", {})
        namespace = said.get("checkpoint_ns")
        if said.get("thread_id") is None:
            yield from (thread for thread in self.all_threads() if namespace in (None, thread.namespace))
            return
        thread_id = thread_id_of({"configurable": said})
        yield from self.threads_of(thread_id) if namespace is None else [self.thread(thread_id, namespace)]

    def renew(self) -> None:
        """Replace the locks after fork(): the threads that held them do not exist in the child."""
        self._lock = threading.Lock()
        self.messages.renew()
        self.invocations.renew()
        for thread in self._threads.values():
            thread.journal.renew()


def _matches(note: Note, wanted: dict[str, Any]) -> bool:
    metadata: dict[str, Any] = {**metadata_of(note)}
    return all(key in metadata and metadata[key] == value for key, value in wanted.items())


def _read(
    values: Values, thread: GraphThread, head: GraphHead | None, id: str, cells: CellReader
) -> CheckpointTuple | None:
    stored = thread.find(head, id, cells)
    if stored is None:
        head = thread.look()  # it may have been deleted, or stored again
        stored = thread.find(head, id, cells)
    return None if stored is None or head is None else thread.tuple_of(values, head, stored, thread.thread_id)


class RecentCells:
    """Reads each cell once: a span within one that was read before is cut out of it. It is kept for one listing."""

    def __init__(self, store: CellReader) -> None:
        self._store = store
        self._read: dict[tuple[int, int], _JoinedCells] = {}

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        found = [self._known(span) for span in spans]
        missing = [span for span, cells in zip(spans, found, strict=True) if cells is None]
        if missing:
            read = dict(zip(missing, self._store.cells(missing), strict=True))
            for span, cells in read.items():
                known = self._read.get((span.thread, span.log))
                if known is None or known.count < span.count:
                    self._read[span.thread, span.log] = _JoinedCells(span.start, cells)
            found = [read[span] if cells is None else cells for span, cells in zip(spans, found, strict=True)]
        return [cells for cells in found if cells is not None]

    def _known(self, span: Span) -> Cells | None:
        known = self._read.get((span.thread, span.log))
        if known is None or span.start < known.start or span.start + span.count > known.start + known.count:
            return None
        return known.cut(span.start - known.start, span.count)


class _JoinedCells:
    """Consecutive cells, joined into one piece; the store has a segment for each commit."""

    def __init__(self, start: int, cells: Cells) -> None:
        self.start = start
        self._refs = cells.refs
        self._lengths = [length for block in cells.blocks for length in block.lengths]
        self._bounds = [0, *accumulate(self._lengths)]
        self._data = b"".join(
            memoryview(block.data)[block.start : block.start + sum(block.lengths)] for block in cells.blocks
        )

    @property
    def count(self) -> int:
        return len(self._lengths)

    def cut(self, first: int, count: int) -> Cells:
        block = Block(self._data, self._bounds[first], self._lengths[first : first + count])
        return Cells((block,), self._refs[first : first + count])
