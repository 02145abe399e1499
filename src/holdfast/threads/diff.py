"""Compare two states.

Exact types count: `1`, `True` and `1.0` differ, and so do a list and a tuple, and `0.0` and `-0.0`. NaN equals NaN.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

from holdfast.codec.msgpack import encode
from holdfast.codec.storable import check
from holdfast.types import Change, Diff


def diff(before: Any, after: Any) -> Diff:
    """The changes from `before` to `after`, both plain values that can be stored.

    >>> for change in diff({"n": 1, "log": ["a"]}, {"n": 2, "log": ["a", "b"]}).changes:
    ...     print(change.kind, change.path, change.before, change.after)
    changed $.n 1 2
    added $.log[1] ABSENT b

    Dicts are compared key by key. Another order of keys is one change of the dict, reported if nothing else in it
    changed. Sets are compared element by element.

    Lists and tuples are aligned, so that one insertion is one change. An item that moved is removed at one place and
    added at the other. Items that were replaced are compared pair by pair, first with first. Items that occur more than
    once are aligned until one call has compared a million pairs (two stretches of a thousand); after that they are
    compared pair by pair too. Every difference is still found, but perhaps as more changes than needed.

    Raises Unsupported if either holds a value that cannot be stored.
    """
    # encode() does not check everything, and its path would start at a list item.
    check(before)
    check(after)
    return Diff(_Comparison().run(before, after))


class _Path(NamedTuple):
    """A place, linked to the place around it. Most places are equal, so their text is never needed."""

    around: _Path | None
    kind: Literal["root", "key", "index", "element"]
    at: Any

    def __str__(self) -> str:
        steps: list[str] = []
        place: _Path | None = self
        while place is not None:
            steps.append(_step(place.kind, place.at))
            place = place.around
        return "".join(reversed(steps))


class _Pair(NamedTuple):
    """Two values still to be compared."""

    path: _Path
    before: Any
    after: Any


class _Reordered(NamedTuple):
    """A dict whose keys are in another order. It is a change if there are still only `changes` changes at its turn."""

    pair: _Pair
    changes: int


_ROOT: Final = _Path(None, "root", None)
_PLAIN: Final[frozenset[type]] = frozenset({type(None), bool, int, str, bytes})
_REBUILD: Final[dict[type, Callable[[Iterable[Any]], Any]]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}
# A NaN in msgpack with other bits than float("nan"). Other data may look like one, which only costs time.
_ODD_NAN: Final = re.compile(rb"\xcb(?!\x7f\xf8\x00{6})[\x7f\xff][\xf0-\xff]")
_ROOM: Final = 1_000_000


class _Comparison:
    # A stack instead of recursion: states nest 200 deep, and the caller may be deep already.

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._todo: list[_Pair | _Reordered | Change] = []
        self._room = _ROOM

    def run(self, before: Any, after: Any) -> tuple[Change, ...]:
        self._todo.append(_Pair(_ROOT, before, after))
        while self._todo:
            task = self._todo.pop()
            if isinstance(task, Change):
                self._changes.append(task)
            elif isinstance(task, _Pair):
                self._todo.extend(reversed(list(self._compare(task))))
            elif len(self._changes) == task.changes:
                self._changes.append(_changed(task.pair))
        return tuple(self._changes)

    def _compare(self, pair: _Pair) -> Iterator[_Pair | _Reordered | Change]:
        path, before, after = pair
        if before is after:
            return
        kind: type[Any] = type(before)
        if kind is not type(after):
            yield _changed(pair)
        elif kind is dict:
            yield from self._dicts(pair, before, after)
        elif kind is list or kind is tuple:
            yield from self._sequences(path, before, after)
        elif kind is set or kind is frozenset:
            yield from _sets(path, before, after)
        elif not _same(before, after):
            yield _changed(pair)

    def _dicts(
        self, pair: _Pair, before: dict[Any, Any], after: dict[Any, Any]
    ) -> Iterator[_Pair | _Reordered | Change]:
        path = pair.path
        old, new = _exact(before), _exact(after)
        for key, name in old.items():
            if key not in new:
                yield Change("removed", str(_Path(path, "key", name)), before=before[name])
        for key, name in new.items():
            place = _Path(path, "key", name)
            if key in old:
                yield _Pair(place, before[old[key]], after[name])
            else:
                yield Change("added", str(place), after=after[name])
        if old.keys() == new.keys() and list(old) != list(new):
            yield _Reordered(pair, len(self._changes))

    def _sequences(self, path: _Path, before: Sequence[Any], after: Sequence[Any]) -> Iterator[_Pair | Change]:
        start, stop_before, stop_after = _trimmed(before, after)
        if start in (stop_before, stop_after) or stop_before == stop_after == start + 1:
            matches: list[tuple[int, int]] = []
        else:
            matches = self._align(_digests(before[start:stop_before]), _digests(after[start:stop_after]))
        i, j = start, start
        for match_i, match_j in [*((start + a, start + b) for a, b in matches), (stop_before, stop_after)]:
            while i < match_i and j < match_j:
                yield _Pair(_Path(path, "index", j), before[i], after[j])
                i, j = i + 1, j + 1
            for index in range(i, match_i):
                yield Change("removed", str(_Path(path, "index", index)), before=before[index])
            for index in range(j, match_j):
                yield Change("added", str(_Path(path, "index", index)), after=after[index])
            i, j = match_i + 1, match_j + 1

    def _align(self, before: list[bytes], after: list[bytes]) -> list[tuple[int, int]]:
        """Index pairs of items that are the same and in the same order."""
        # Items that occur once on both sides cut the lists into short stretches in n log n. The quadratic search is
        # left with the rest. difflib takes cubic time if items repeat (0.7 s for 512 items), and reports 40 changes
        # where 4 are enough, because it takes the first of the longest runs.
        matches: list[tuple[int, int]] = []
        i, j = 0, 0
        for anchor_i, anchor_j in [*_anchors(before, after), (len(before), len(after))]:
            matches.extend((i + a, j + b) for a, b in self._align_gap(before[i:anchor_i], after[j:anchor_j]))
            matches.append((anchor_i, anchor_j))
            i, j = anchor_i + 1, anchor_j + 1
        return matches[:-1]

    def _align_gap(self, before: list[bytes], after: list[bytes]) -> Iterator[tuple[int, int]]:
        start, stop_before, stop_after = _trimmed(before, after)
        yield from ((index, index) for index in range(start))
        size = (stop_before - start) * (stop_after - start)
        if size <= self._room:
            self._room -= size
            common = _common(before[start:stop_before], after[start:stop_after])
            yield from ((start + a, start + b) for a, b in common)
        yield from zip(range(stop_before, len(before)), range(stop_after, len(after)), strict=True)


def _sets(path: _Path, before: Iterable[Any], after: Iterable[Any]) -> Iterator[Change]:
    old, new = _exact(before), _exact(after)
    for key in sorted(old.keys() - new.keys()):
        yield Change("removed", str(_Path(path, "element", old[key])), before=old[key])
    for key in sorted(new.keys() - old.keys()):
        yield Change("added", str(_Path(path, "element", new[key])), after=new[key])


def _exact(names: Iterable[Any]) -> dict[tuple[bytes, int], Any]:
    """Keys or elements by their exact identity, in order.

    To Python 1, True and 1.0 are the same key, so their bytes are used instead. NaN never equals NaN, so a dict can
    hold several: these are counted.
    """
    exact: dict[tuple[bytes, int], Any] = {}
    for name in names:
        encoded, count = _identity(name), 0
        while (encoded, count) in exact:
            count += 1
        exact[encoded, count] = name
    return exact


def _same(before: Any, after: Any) -> bool:
    kind: type[Any] = type(before)
    if kind is not type(after):
        return False
    if before is after:
        return True
    if kind in _PLAIN:
        return bool(before == after)
    return _identity(before) == _identity(after)


def _identity(value: Any) -> bytes:
    """Bytes that are equal if and only if the values are exactly equal."""
    encoded = encode(value)
    return encoded if _ODD_NAN.search(encoded) is None else encode(_plain_nan(value))


def _plain_nan(value: Any) -> Any:
    """The value with the same bits for every NaN: inf - inf has others than float("nan")."""
    kind: type[Any] = type(value)
    if kind is float and math.isnan(value):
        return float("nan")  # a new object each time: several in a set must not become one
    if kind is dict:
        return {_plain_nan(key): _plain_nan(item) for key, item in value.items()}
    rebuild = _REBUILD.get(kind)
    return value if rebuild is None else rebuild(map(_plain_nan, value))


def _trimmed(before: Sequence[Any], after: Sequence[Any]) -> tuple[int, int, int]:
    """The stretch that differs: its start in both, and its end in each."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    return start, len(before) - end, len(after) - end


def _digests(items: Sequence[Any]) -> list[bytes]:
    # Digests, not the bytes: a state of 100 MB would be in memory twice more.
    return [blake2b(_identity(item), digest_size=16).digest() for item in items]


def _anchors(before: list[bytes], after: list[bytes]) -> list[tuple[int, int]]:
    """Index pairs of items that occur once on both sides: the longest series that is in order on both."""
    seen_before, seen_after = Counter(before), Counter(after)
    where = {key: j for j, key in enumerate(after) if seen_after[key] == 1 and seen_before[key] == 1}
    unique = [(i, where[key]) for i, key in enumerate(before) if key in where]
    # Longest increasing subsequence: for each length the smallest last j, and a link back to the pair before.
    smallest: list[int] = []
    holder: list[int] = []
    previous: list[int] = []
    for number, (_, j) in enumerate(unique):
        length = bisect_left(smallest, j)
        if length == len(smallest):
            smallest.append(j)
            holder.append(number)
        else:
            smallest[length] = j
            holder[length] = number
        previous.append(holder[length - 1] if length else -1)
    chain: list[tuple[int, int]] = []
    number = holder[-1] if holder else -1
    while number >= 0:
        chain.append(unique[number])
        number = previous[number]
    chain.reverse()
    return chain


def _common(before: list[bytes], after: list[bytes]) -> list[tuple[int, int]]:
    """Index pairs of a longest common subsequence."""
    # longest[-1 - i][j] is its length from before[i] and after[j] on.
    longest = [[0] * (len(after) + 1)]
    for item in reversed(before):
        below, row, length = longest[-1], [0] * (len(after) + 1), 0
        for j in range(len(after) - 1, -1, -1):
            length = below[j + 1] + 1 if item == after[j] else max(length, below[j])
            row[j] = length
        longest.append(row)
    pairs: list[tuple[int, int]] = []
    i, j = 0, 0
    while i < len(before) and j < len(after):
        if before[i] == after[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif longest[-2 - i][j] >= longest[-1 - i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _changed(pair: _Pair) -> Change:
    return Change("changed", str(pair.path), before=pair.before, after=pair.after)


def _step(kind: Literal["root", "key", "index", "element"], at: Any) -> str:
    if kind == "root":
        return "$"
    if kind == "index":
        return f"[{at}]"
    if kind == "key" and type(at) is str and at.isidentifier():
        return f".{at}"
    shown = _shown(at)
    return f"[{shown}]" if kind == "key" else f"{{{shown}}}"


def _shown(name: Any) -> str:
    if type(name) is str:
        return json.dumps(name)
    try:
        return repr(name)
    except ValueError:  # an int of more digits than Python converts
        return f"<{type(name).__name__}>"
