"""The base: what a handle holds of a thread's head, to find what a save changes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from holdfast.state.parts import Chunk, Map, Owner, Part, Series, Split, Unit, digest_of, node_digest, refs_of
from holdfast.stores.contract import Span


class Index:
    """Finds a cell by its bytes among the parts a handle holds.

    Entries refer to parts weakly: a part that left the state takes its cells out of the index with it. Only cells of
    the head may be named by a new checkpoint, because only those are safe from a prune in another process.
    """

    __slots__ = ("_owners", "_purge_at")

    def __init__(self) -> None:
        self._owners: dict[bytes, weakref.ref[Owner]] = {}
        self._purge_at = 1_024

    def owner(self, digest: bytes) -> Owner | None:
        ref = self._owners.get(digest)
        return None if ref is None else ref()

    def add(self, owner: Owner, digests: Iterable[bytes]) -> None:
        ref = weakref.ref(owner)
        for digest in digests:
            self._owners[digest] = ref
        if len(self._owners) > self._purge_at:
            self._owners = {digest: ref for digest, ref in self._owners.items() if ref() is not None}
            self._purge_at = 2 * len(self._owners) + 1_024


class Base:
    """A stored state as parts, with what is needed to append to its logs.

    `branch` is the seq at which the logs it may append to were opened, `ends` where each of them ends.
    """

    __slots__ = ("_index", "branch", "ends", "root", "seq")

    def __init__(self, root: Part, seq: int, branch: int, ends: tuple[int, ...], index: Index | None = None) -> None:
        self.root = root
        self.seq = seq
        self.branch = branch
        self.ends = ends
        self._index = index

    @property
    def size(self) -> int:
        return self.root.size

    @property
    def index(self) -> Index:
        """Built when first needed: reading a state should not pay for hashing all of it."""
        if self._index is None:
            index = Index()
            for owner, digests in _owned(self.root):
                index.add(owner, digests)
            self._index = index
        return self._index


def _owned(part: Part) -> Iterator[tuple[Owner, Iterable[bytes]]]:
    match part:
        case Unit() if part.spans:
            yield part, (digest_of(part.plain),)
        case Map():
            if part.span is not None:
                yield part, (node_digest(part.body, part.refs),)
            for member in part.parts:
                yield from _owned(member)
        case Series():
            for chunk in part.chunks:
                match chunk:
                    case Chunk():
                        yield chunk, chunk.digests
                    case Split():
                        yield chunk, (split_digest(chunk.parts),)
                        for member in chunk.parts:
                            yield from _owned(member)
        case _:
            pass


def split_digest(parts: tuple[Part, ...]) -> bytes:
    """Key of the node cell of a split item."""
    return node_digest(b"".join(part.embed for part in parts), refs_of(parts))


def locate(index: Index, digest: bytes) -> Span | None:
    """Where a cell with these bytes is stored, if the handle holds one."""
    owner = index.owner(digest)
    return None if owner is None else owner.locate(digest)


class Bases:
    """Bases by thread number, at most `limit` bytes of them: the least recently used go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._bases: OrderedDict[int, Base] = OrderedDict()
        self._size = 0

    def get(self, thread: int, seq: int) -> Base | None:
        """The base of that thread, if it is of that checkpoint."""
        with self._lock:
            base = self._bases.get(thread)
            if base is None or base.seq != seq:
                return None
            self._bases.move_to_end(thread)
            return base

    def put(self, thread: int, base: Base) -> None:
        with self._lock:
            self._forget(thread)
            if base.size > self._limit:
                return
            self._bases[thread] = base
            self._size += base.size
            while self._size > self._limit:
                _, oldest = self._bases.popitem(last=False)
                self._size -= oldest.size

    def forget(self, thread: int) -> None:
        with self._lock:
            self._forget(thread)

    def clear(self) -> None:
        with self._lock:
            self._bases.clear()
            self._size = 0

    @property
    def size(self) -> int:
        """Bytes held now."""
        return self._size

    def _forget(self, thread: int) -> None:
        known = self._bases.pop(thread, None)
        if known is not None:
            self._size -= known.size
