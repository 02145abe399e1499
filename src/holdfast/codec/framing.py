"""msgpack framing: the headers the codec and the state layer write by hand, and the depth of data not yet read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_FIXED_EXTENSIONS: Final = {1: b"\xd4", 2: b"\xd5", 4: b"\xd6", 8: b"\xd7", 16: b"\xd8"}

# First byte -> (bytes of length after it, bytes beside the length). Extensions count their code byte.
_SIZED: Final = {
    **{0xC4 + i: (1 << i, 0) for i in range(3)},
    **{0xC7 + i: (1 << i, 1) for i in range(3)},
    **{0xD9 + i: (1 << i, 0) for i in range(3)},
}
_PLAIN: Final = {
    0xCA: 4,
    0xCB: 8,
    **{0xCC + i: 1 << i for i in range(4)},
    **{0xD0 + i: 1 << i for i in range(4)},
}


def array_header(count: int) -> bytes:
    """What precedes `count` encoded items to make them a list; the shortest form."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def map_header(count: int) -> bytes:
    """What precedes `count` encoded pairs to make them a dict; the shortest form."""
    if count < 16:
        return bytes((0x80 | count,))
    if count < 1 << 16:
        return b"\xde" + count.to_bytes(2, "big")
    return b"\xdf" + count.to_bytes(4, "big")


def extension(code: int, payload: bytes) -> bytes:
    """An extension value; the shortest form."""
    size = len(payload)
    kind = code.to_bytes(1, "big", signed=True)
    fixed = _FIXED_EXTENSIONS.get(size)
    if fixed is not None:
        return fixed + kind + payload
    if size < 1 << 8:
        return b"\xc7" + size.to_bytes(1, "big") + kind + payload
    if size < 1 << 16:
        return b"\xc8" + size.to_bytes(2, "big") + kind + payload
    return b"\xc9" + size.to_bytes(4, "big") + kind + payload


def deeper_than(data: bytes, limit: int, containers: Collection[int]) -> bool:
    """Whether lists, maps and extensions of the codes `containers` (they hold values) nest more than `limit` deep.

    Reads headers only, without recursion and without building anything. Malformed data is not reported here: the
    reading stops, as the decoder will, where the data stops making sense.
    """
    ranges = [(0, len(data), 0)]
    while ranges:
        at, end, base = ranges.pop()
        open_counts: list[int] = []
        while at < end:
            while open_counts and not open_counts[-1]:
                open_counts.pop()
            if open_counts:
                open_counts[-1] -= 1
            first = data[at]
            at += 1
            size = 0
            children = -1
            code = -1
            if first < 0x80 or first >= 0xE0:
                pass
            elif first < 0x90:
                children = 2 * (first & 0x0F)
            elif first < 0xA0:
                children = first & 0x0F
            elif first < 0xC0:
                size = first & 0x1F
            elif first in _PLAIN:
                size = _PLAIN[first]
            elif first in _SIZED:
                width, beside = _SIZED[first]
                size = int.from_bytes(data[at : at + width], "big")
                at += width
                if beside:
                    code = data[at] if at < end else -1
                    at += 1
            elif 0xD4 <= first <= 0xD8:
                size = 1 << (first - 0xD4)
                code = data[at] if at < end else -1
                at += 1
            elif first >= 0xDC:
                width = 2 if first in (0xDC, 0xDE) else 4
                children = int.from_bytes(data[at : at + width], "big") * (1 if first < 0xDE else 2)
                at += width
            if children >= 0:
                open_counts.append(children)
                if base + len(open_counts) > limit:
                    return True
            elif code in containers:
                depth = base + len(open_counts) + 1
                if depth > limit:
                    return True
                ranges.append((at, min(at + size, end), depth))
            at += size
    return False
