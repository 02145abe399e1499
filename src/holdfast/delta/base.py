"""The base: the head's state as parts, which a handle keeps to find what the next save changes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from holdfast.delta.parts import (
    CellHolder,
    Chunk,
    Ext,
    Key,
    Large,
    Map,
    Part,
    Pieces,
    Series,
    Split,
    Unit,
    key_of,
    node_digest,
    refs_of,
)

_ITEM_OVERHEAD = 120  # bytes of memory per item besides its own bytes: a length, a digest, an entry in the index


FREE_SIZE = 16 << 20  # a state up to this size may repeat the same cells without limit
RATIO = 100  # a larger state may be this many times as large as its cells; beyond that, nothing is shared
HOLDERS = 16  # parts with the same cell that an index knows: a list may repeat an item in thousands of chunks


class Index:
    """Finds the parts that hold a cell with a given key, in this base and in earlier ones.

    Entries are weak, so that parts which left the state can be freed. A part may stay alive for other reasons (a reader
    has it, or the traceback of an error), so an entry counts only if the base still holds its part. A state may hold
    the same cell in several parts, and each may leave the state: `_others` has the parts of a cell before the newest.
    If none of those that are known is left, the cell is stored again.
    """

    __slots__ = ("_others", "_purge_at", "newest")

    def __init__(self) -> None:
        self.newest: dict[Key, weakref.ref[CellHolder]] = {}
        self._others: dict[Key, list[weakref.ref[CellHolder]]] = {}
        self._purge_at = 1_024

    def holders(self, key: Key) -> Iterator[CellHolder]:
        """The parts that hold a cell with this key, the newest first."""
        newest = self.newest.get(key)
        if newest is None:
            return
        for ref in (newest, *reversed(self._others.get(key, ()))):
            holder = ref()
            if holder is not None:
                yield holder

    def add(self, holder: CellHolder, keys: Iterable[Key], holder_ids: set[int] | None = None) -> None:
        """Add a part of the new state. `holder_ids` are the ids of all its parts; None while the index is built."""
        ref = weakref.ref(holder)
        newest = self.newest
        replaced: weakref.ref[CellHolder] | None = None  # a part that left: usually the chunk that `holder` continues
        for key in keys:
            known = newest.get(key)
            newest[key] = ref
            if known is None or known is replaced:
                continue
            before = known()
            if before is None or before is holder or (holder_ids is not None and id(before) not in holder_ids):
                replaced = known
            else:
                others = [other for other in self._others.get(key, ()) if other() is not None]
                self._others[key] = [*others[2 - HOLDERS :], known]
        if len(self.newest) > self._purge_at:
            if holder_ids is not None:  # while the index is built, every part is alive
                self.newest = {key: ref for key, ref in self.newest.items() if any(True for _ in self.holders(key))}
                self._others = {key: refs for key, refs in self._others.items() if key in self.newest}
            self._purge_at = 2 * len(self.newest) + 1_024


class Base:
    """A stored state as parts, and the position of the logs that the next save may append to.

    `opened_by` is the seq of the save that opened those logs, `ends` where each of them ends. `footprint` is about how
    many bytes of memory the base takes.
    """

    __slots__ = ("_holder_ids", "_index", "_large", "ends", "footprint", "opened_by", "root", "seq")

    def __init__(self, root: Part, seq: int, opened_by: int, ends: tuple[int, ...], index: Index | None = None) -> None:
        self.root = root
        self.seq = seq
        self.opened_by = opened_by
        self.ends = ends
        self.footprint = root.size + _ITEM_OVERHEAD * root.items
        self._index = index
        self._holder_ids: set[int] | None = None
        self._large: dict[bytes | int, Large] | None = None

    @property
    def index(self) -> Index:
        """The index of the cells. It is built on first use, so that reading a state does not pay for it."""
        if self._index is None:
            index = Index()
            for holder in _holders(self.root):
                index.add(holder, _keys(holder))
            self._index = index
        return self._index

    def find(self, key: Key) -> CellHolder | None:
        """The part of this base that holds a cell with this key.

        A new checkpoint may name only cells of the head: a prune in another process may sweep all others.
        """
        index = self._index or self.index
        if key not in index.newest:
            return None
        holder_ids = self.holder_ids
        for holder in index.holders(key):
            if id(holder) in holder_ids:
                return holder
        return None

    @property
    def holder_ids(self) -> set[int]:
        """The ids of the parts that have cells of their own."""
        if self._holder_ids is None:
            self._holder_ids = set(map(id, _holders(self.root)))
        return self._holder_ids

    def read_large(self, read: Callable[[Large], Any]) -> None:
        """Read each blob of this base once, and keep its value in all parts that name it."""
        values: dict[tuple[bytes, Ext], Any] = {}
        for part in _larges(self.root):
            key = part.digest, part.ext
            if key not in values:
                values[key] = read(part)
            if part.ext is not Ext.PACKED:
                part.value = values[key]

    def large(self, key: bytes | int) -> Large | None:
        """A blob of this base by its digest, or by the id of the object last seen."""
        if self._large is None:
            found: dict[bytes | int, Large] = {}
            for part in _larges(self.root):
                found[part.digest] = part
                if part.value is not None:
                    found[id(part.value)] = part
            self._large = found
        return self._large.get(key)


def _holders(root: Part) -> list[CellHolder]:
    """The parts with cells of their own. Every save needs them, so there is no call per chunk."""
    found: list[CellHolder] = []
    waiting = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Unit):
            if part.spans:
                found.append(part)
        elif isinstance(part, Series):
            found += part.chunks
            for chunk in part.chunks:
                if isinstance(chunk, Split):
                    waiting += chunk.parts
        elif isinstance(part, Map):
            waiting += part.parts
            if part.span is not None:
                found.append(part)
    return found


def _keys(holder: CellHolder) -> Iterable[Key]:
    match holder:
        case Unit():
            return (key_of(holder.plain),)
        case Map():
            return (node_digest(holder.body, holder.refs),)
        case Chunk():
            return holder.keys
        case Split():
            return (node_digest(b"".join(part.embed for part in holder.parts), refs_of(holder.parts)),)


def _larges(part: Part) -> Iterator[Large]:
    match part:
        case Large():
            yield part
        case Map():
            for member in part.parts:
                yield from _larges(member)
        case Series():
            for chunk in part.chunks:
                if isinstance(chunk, Split):
                    for member in chunk.parts:
                        yield from _larges(member)
        case Unit() | Pieces():
            pass


# -- states that repeat themselves ------------------------------------------------------------------------------------


def repeats(root: Part) -> bool:
    """Whether a large state repeats its cells so often that a load would refuse it as forged.

    A load has this limit because a few forged bytes could expand to gigabytes. A save stores such a state without
    sharing cells.
    """
    wanted = root.size // RATIO if root.size > FREE_SIZE else 0
    seen: set[object] = set()
    waiting: list[Part] = [root]
    while waiting and wanted > 0:
        part = waiting.pop()
        key: object = part.blob_digests or part.spans or id(part)
        if key in seen:
            continue
        seen.add(key)
        if isinstance(part, Map):
            waiting += part.parts
        elif isinstance(part, Series):
            for chunk in part.chunks:
                if chunk.spans not in seen:
                    seen.add(chunk.spans)
                    if isinstance(chunk, Split):
                        waiting += chunk.parts
                    else:
                        wanted -= chunk.size
        else:
            wanted -= part.size
    return wanted > 0


class Bases:
    """The bases of a handle by thread number: at most `limit` bytes; the least recently used is dropped first."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._lock = threading.Lock()
        self._bases: OrderedDict[int, Base] = OrderedDict()
        self._size = 0

    def get(self, thread: int, seq: int) -> Base | None:
        """The base of a thread, if it is the one of this checkpoint."""
        with self._lock:
            base = self._bases.get(thread)
            if base is None or base.seq != seq:
                return None
            self._bases.move_to_end(thread)
            return base

    def put(self, thread: int, base: Base) -> None:
        with self._lock:
            old = self._bases.pop(thread, None)
            if old is not None:
                self._size -= old.footprint
            if base.footprint > self.limit:
                return
            self._bases[thread] = base
            self._size += base.footprint
            while self._size > self.limit:
                _, oldest = self._bases.popitem(last=False)
                self._size -= oldest.footprint

    def forget(self, thread: int) -> None:
        with self._lock:
            old = self._bases.pop(thread, None)
            if old is not None:
                self._size -= old.footprint

    def clear(self) -> None:
        with self._lock:
            self._bases.clear()
            self._size = 0

    @property
    def size(self) -> int:
        """About how many bytes the bases take."""
        return self._size

    def renew(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may have held it."""
        self._lock = threading.Lock()
