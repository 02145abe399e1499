"""Whether a restored state is the one that was saved: equal, and of the same types, everywhere in it.

`==` is too generous for that: 1 == True == 1.0, a subclass may equal its base, and NaN does not equal itself.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta, timezone
from typing import Any, Final

from holdfast.codec.check import LEAVES, key_step, type_name
from holdfast.codec.fields import attributes, has_fields
from holdfast.codec.packed import encode
from holdfast.errors import Unsupported

_ZONES_OF_PYDANTIC: Final = "pydantic_core._pydantic_core"
_CLOCKS: Final[frozenset[type]] = frozenset({datetime, time})


def difference(state: Any, back: Any, path: str = "$") -> None:
    """Raise `Unsupported`, with the path, at the first place where what came back is not what was there."""
    kind = type(state)
    if type(back) is not kind:
        raise Unsupported(
            path,
            f"a {type_name(kind)} would come back as {type_name(type(back))}; say in the type what is there, "
            "or store what the type says",
        )
    if state is back:
        return
    if kind in LEAVES or kind in _CLOCKS:
        same = _bytes(state, path) == _bytes(back, path)
    elif kind is bytearray:
        same = state == back
    elif has_fields(kind):
        same = _compare_fields(state, back, path)
    elif issubclass(kind, dict):
        same = _compare_dicts(state, back, path)
    elif issubclass(kind, (list, tuple)):
        same = len(state) == len(back)
        for index, (left, right) in enumerate(zip(state, back, strict=False)):
            difference(left, right, f"{path}[{index}]")
    elif issubclass(kind, (set, frozenset)):
        same = _compare_sets(state, back, path)
    else:  # an enum's member comes back as itself, or as another one
        same = False
    if not same:
        raise Unsupported(path, f"a {type_name(kind)} would not come back equal")


def settled(value: Any) -> Any:
    """A datetime or time as the codec can store it, where it comes from pydantic's parser.

    pydantic gives what it parses a fixed-offset zone of a private class. Refusing it would refuse most models ever
    read from JSON; `datetime.timezone` of the same offset stands for it.
    """
    if type(value) in _CLOCKS and type(value.tzinfo).__module__ == _ZONES_OF_PYDANTIC:
        offset: timedelta | None = value.tzinfo.utcoffset(None)
        if offset is not None:
            return value.replace(tzinfo=timezone(offset))
    return value


def _bytes(value: Any, path: str) -> bytes:
    try:
        return encode(settled(value))
    except Unsupported as error:
        raise Unsupported(path, error.problem) from error


def _compare_fields(state: Any, back: Any, path: str) -> bool:
    before, after = attributes(state), attributes(back)
    for name, item in before.items():
        if name not in after:
            raise Unsupported(path + key_step(name), "would be lost: the type does not store it")
        difference(item, after[name], path + key_step(name))
    return len(before) == len(after)


def _compare_dicts(state: dict[Any, Any], back: dict[Any, Any], path: str) -> bool:
    if len(state) != len(back):
        return False
    for (key, item), (other, again) in zip(state.items(), back.items(), strict=True):
        step = path + key_step(key)
        difference(key, other, step)
        difference(item, again, step)
    return True


def _compare_sets(state: Any, back: Any, path: str) -> bool:
    if len(state) != len(back):
        return False
    # The order of two equal sets may differ. NaN, alone or in a tuple, finds no partner: what is left over on both
    # sides is compared as it comes.
    others = {item: item for item in back}
    left: list[Any] = []
    for item in state:
        if item in others:
            difference(item, others.pop(item), path)
        else:
            left.append(item)
    for item, other in zip(left, others, strict=True):
        difference(item, other, path)
    return True
