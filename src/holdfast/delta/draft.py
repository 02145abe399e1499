"""A draft: the new cells and values of one save, addressed as they will be stored."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated

import msgspec

from holdfast.delta.base import Base, Index
from holdfast.delta.parts import Large, Map, Owner, Part, Split, Unit, digest_of, node_digest
from holdfast.stores.contract import NO_REFS, Refs, Run, SharedValue, Span
from holdfast.stores.hashing import Hashing

PIECE_MAX = 8 * 1024 * 1024  # bytes of a shared value stored together


class LogKind(IntEnum):
    """The low four bits of a log's number; the rest is the seq of the save that opened it.

    Every branch opens logs of its own, so a save after a rewind or a fork needs no knowledge of what the abandoned
    branch appended. Long lists get logs of their own, as far as they go: two lists that grow in turns in one log
    would get a span per save.
    """

    NODE = 0  # node and table cells: bodies that refer to other cells
    UNIT = 1
    ITEMS = 2  # … to LAST: plain items of series
    LAST = 15


def log_number(branch: int, kind: int) -> int:
    return branch << 4 | kind


def log_kind(log: int) -> int:
    return log & 15


def log_branch(log: int) -> int:
    return log >> 4


# What is added to a number that was stored must still be one that can be: a forged skeleton is refused when it is read.
_Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
_Ends = Annotated[tuple[_Natural, ...], msgspec.Meta(min_length=int(LogKind.ITEMS), max_length=LogKind.LAST + 1)]


class Skeleton(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint stores besides its references: enough to read the state, and to go on appending.

    `wrote` lists (log, start, count) of the cells the save brought, which its digest covers.
    """

    branch: _Natural
    ends: _Ends
    wrote: tuple[tuple[_Natural, _Natural, _Natural], ...]
    size: _Natural
    body: bytes


class Draft:
    """Gathers what one save adds. Nothing the base holds is changed until `Draft.base()` is installed."""

    def __init__(self, seq: int, base: Base | None, *, linear: bool, hashing: Hashing) -> None:
        """`linear`: no other save came after the base, so its logs may be appended to."""
        self.seq = seq
        self.address = hashing.address
        self.linear = linear
        if base is not None and linear:
            self.branch = base.branch
            self._ends = list(base.ends)
        else:
            self.branch = seq
            self._ends = [0] * LogKind.ITEMS
        self._base = base
        self._cells: dict[int, tuple[int, list[bytes], list[Refs]]] = {}
        self._fresh: dict[bytes, Span] = {}
        self._owners: list[tuple[Owner, Sequence[bytes]]] = []
        self.values: dict[bytes, SharedValue] = {}

    def owner(self, digest: bytes) -> Owner | None:
        """The part of the base that holds a cell of this digest."""
        return None if self._base is None else self._base.find(digest)

    def find(self, digest: bytes) -> Span | None:
        """Where a cell with this digest is, or will be, stored."""
        fresh = self._fresh.get(digest)
        if fresh is not None:
            return fresh
        owner = self.owner(digest)
        return None if owner is None else owner.locate(digest)

    def large(self, key: bytes | int) -> Large | None:
        """A shared value that the base holds already, by digest or by the identity of its object."""
        return None if self._base is None else self._base.large(key)

    def append(self, kind: int, cell: bytes, digest: bytes, refs: Refs | None = None) -> Span:
        """Address a new cell at the end of a log."""
        log = log_number(self.branch, kind)
        position = self._ends[kind]
        self._ends[kind] = position + 1
        _, cells, all_refs = self._cells.setdefault(kind, (position, [], []))
        cells.append(cell)
        if kind == LogKind.NODE:
            all_refs.append(NO_REFS if refs is None else refs)
        span = Span(0, log, position, 1, self.seq, self.seq)
        self._fresh[digest] = span
        return span

    def unit(self, plain: bytes) -> Unit:
        digest = digest_of(plain)
        unit = Unit(plain, self.find(digest) or self.append(LogKind.UNIT, plain, digest))
        self.hold(unit, (digest,))
        return unit

    def node(self, body: bytes, refs: Refs) -> tuple[Span, bytes]:
        """The span of a node cell, and its digest."""
        digest = node_digest(body, refs)
        return self.find(digest) or self.append(LogKind.NODE, body, digest, refs), digest

    def place(self, part: Map) -> None:
        span, digest = self.node(part.body, part.refs)
        part.place(span)
        self.hold(part, (digest,))

    def split(self, parts: tuple[Part, ...], body: bytes, refs: Refs) -> Split:
        span, digest = self.node(body, refs)
        item = Split(parts, span)
        self.hold(item, (digest,))
        return item

    def value(self, digest: bytes, data: bytes) -> None:
        if digest not in self.values:
            view = memoryview(data)
            pieces = tuple(bytes(view[at : at + PIECE_MAX]) for at in range(0, len(data), PIECE_MAX))
            self.values[digest] = SharedValue(digest, pieces)

    def items_log(self, wanted: int | None) -> int:
        """The item log for a series: the one it has, or a new one while there are any."""
        if wanted is not None and wanted < len(self._ends):
            return wanted
        if len(self._ends) <= LogKind.LAST:
            self._ends.append(0)
        return len(self._ends) - 1

    def hold(self, owner: Owner, digests: Sequence[bytes]) -> None:
        """Remember where the new parts' cells are, for saves to come."""
        self._owners.append((owner, digests))

    def runs(self) -> tuple[Run, ...]:
        """The new cells, by log."""
        return tuple(
            [
                Run(log_number(self.branch, kind), start, tuple(cells), tuple(refs))
                for kind, (start, cells, refs) in sorted(self._cells.items())
            ]
        )

    def skeleton(self, root: Part, runs: Sequence[Run]) -> Skeleton:
        wrote = tuple([(run.log, run.start, len(run.cells)) for run in runs])
        body = root.body if isinstance(root, Map) else root.embed
        return Skeleton(self.branch, tuple(self._ends), wrote, root.size, body)

    def base(self, root: Part) -> Base:
        """The base for the next save. Call it only once the draft is stored: it makes the new cells findable."""
        index = Index() if self._base is None else self._base.index
        base = Base(root, self.seq, self.branch, tuple(self._ends), index)
        for owner, digests in self._owners:
            index.add(owner, digests, base.held)
        return base
