"""The base: what a handle holds of a thread's head, to find what a save changes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from holdfast.delta.parts import Chunk, Large, Map, Owner, Part, Series, Split, Unit, digest_of, node_digest, refs_of

_ITEM_OVERHEAD = 120  # bytes that an item takes besides its own: a length, a digest, an entry of the index


class Index:
    """Finds the parts that hold a cell of some digest, among those of this base and of earlier ones.

    Entries are weak, so that parts which left the state can go. One may be kept alive all the same (by a reader, by the
    traceback of an error), so an entry counts only if the base holds its part. A cell may be in several parts of a
    state, any of which may leave it: all but the newest are in `_others`.
    """

    __slots__ = ("_others", "_owners", "_purge_at")

    def __init__(self) -> None:
        self._owners: dict[bytes, weakref.ref[Owner]] = {}
        self._others: dict[bytes, list[weakref.ref[Owner]]] = {}
        self._purge_at = 1_024

    def owners(self, digest: bytes) -> Iterator[Owner]:
        """The newest first."""
        newest = self._owners.get(digest)
        if newest is None:
            return
        for ref in (newest, *reversed(self._others.get(digest, ()))):
            owner = ref()
            if owner is not None:
                yield owner

    def add(self, owner: Owner, digests: Iterable[bytes], held: frozenset[int] | None = None) -> None:
        """A part that is in the state from now on; `held` are all that are, None if nothing was there before."""
        ref = weakref.ref(owner)
        for digest in digests:
            known = self._owners.get(digest)
            self._owners[digest] = ref
            before = None if known is None else known()
            if before is not None and before is not owner and (held is None or id(before) in held):
                others = [other for other in self._others.get(digest, ()) if other() is not None]
                self._others[digest] = [*others, weakref.ref(before)]
        if len(self._owners) > self._purge_at:
            self._owners = {
                digest: ref for digest, ref in self._owners.items() if any(True for _ in self.owners(digest))
            }
            self._others = {digest: refs for digest, refs in self._others.items() if digest in self._owners}
            self._purge_at = 2 * len(self._owners) + 1_024


class Base:
    """A stored state as parts, with what is needed to append to its logs.

    `branch` is the seq at which the logs it may append to were opened, `ends` where each of them ends.
    """

    __slots__ = ("_held", "_index", "_large", "branch", "ends", "root", "seq")

    def __init__(self, root: Part, seq: int, branch: int, ends: tuple[int, ...], index: Index | None = None) -> None:
        self.root = root
        self.seq = seq
        self.branch = branch
        self.ends = ends
        self._index = index
        self._held: frozenset[int] | None = None
        self._large: dict[bytes | int, Large] | None = None

    @property
    def size(self) -> int:
        """Encoded bytes of the state."""
        return self.root.size

    @property
    def footprint(self) -> int:
        """About how much memory the base takes."""
        return self.root.size + _ITEM_OVERHEAD * self.root.items

    @property
    def index(self) -> Index:
        """Built when first needed: reading a state should not pay for hashing all of it."""
        if self._index is None:
            index = Index()
            for owner in _owners(self.root):
                index.add(owner, _digests(owner))
            self._index = index
        return self._index

    def find(self, digest: bytes) -> Owner | None:
        """The part of this base that holds a cell of this digest.

        Only cells of the head may be named by a new checkpoint: all others may be swept by a prune in another process.
        """
        return next((owner for owner in self.index.owners(digest) if id(owner) in self.held), None)

    @property
    def held(self) -> frozenset[int]:
        """The identities of the parts that have cells of their own."""
        if self._held is None:
            self._held = frozenset(map(id, _owners(self.root)))
        return self._held

    def large(self, key: bytes | int) -> Large | None:
        """A shared value of this base by its digest, or by the identity of the object last seen."""
        if self._large is None:
            found: dict[bytes | int, Large] = {}
            for part in _larges(self.root):
                found[part.digest] = part
                if part.value is not None:
                    found[id(part.value)] = part
            self._large = found
        return self._large.get(key)


def _owners(part: Part) -> Iterator[Owner]:
    """The parts below this one, and itself, that have cells of their own."""
    match part:
        case Unit() if part.spans:
            yield part
        case Map():
            if part.span is not None:
                yield part
            for member in part.parts:
                yield from _owners(member)
        case Series():
            for chunk in part.chunks:
                yield chunk
                if isinstance(chunk, Split):
                    for member in chunk.parts:
                        yield from _owners(member)
        case _:
            pass


def _digests(owner: Owner) -> Iterable[bytes]:
    match owner:
        case Unit():
            return (digest_of(owner.plain),)
        case Map():
            return (node_digest(owner.body, owner.refs),)
        case Chunk():
            return owner.digests
        case Split():
            return (node_digest(b"".join(part.embed for part in owner.parts), refs_of(owner.parts)),)


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
        case Unit():
            pass


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
            if base.footprint > self._limit:
                return
            self._bases[thread] = base
            self._size += base.footprint
            while self._size > self._limit:
                _, oldest = self._bases.popitem(last=False)
                self._size -= oldest.footprint

    def forget(self, thread: int) -> None:
        with self._lock:
            self._forget(thread)

    def clear(self) -> None:
        with self._lock:
            self._bases.clear()
            self._size = 0

    @property
    def size(self) -> int:
        """About how many bytes are held now."""
        return self._size

    def renew(self) -> None:
        """After fork(), in the child: whoever held the lock is not here to release it."""
        self._lock = threading.Lock()

    def _forget(self, thread: int) -> None:
        known = self._bases.pop(thread, None)
        if known is not None:
            self._size -= known.footprint
