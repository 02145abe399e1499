"""Find the path of a part within a value, for error messages. Follows the same structure as LangGraph's serializer."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final

import ormsgpack
from langgraph.store.base import Item

from holdfast.codec.storable import key_step, type_name

_LEAVES: Final[frozenset[type]] = frozenset({type(None), bool, int, float, str, bytes})
_LISTS: Final = (list, tuple, set, frozenset, deque)
_DEEPEST: Final = 250

_OPTIONS: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


def place(value: Any, test: Callable[[Any], bool], path: str) -> tuple[str, Any] | None:
    """Find the first innermost part of `value` that passes the test; returns its path and the part, or None.

    `path` is the path of `value` itself.
    """
    return _search(value, test, path, {}, _DEEPEST)


def _search(
    value: Any, test: Callable[[Any], bool], path: str, met: dict[int, Any], room: int
) -> tuple[str, Any] | None:
    if type(value) not in _LEAVES:
        # Parts may be temporary objects; they are kept alive, because another one could get the same id.
        if room <= 0 or id(value) in met:
            return None
        met[id(value)] = value
        for step, part in _steps(value):
            found = _search(part, test, path + step, met, room - 1)
            if found is not None:
                return found
    return (path, value) if test(value) else None


def _steps(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in list(value.items()):
            step = key_step(key)
            yield step, key
            yield step, item
    elif isinstance(value, _LISTS) and not hasattr(value, "_asdict"):
        ordered = isinstance(value, list | tuple | deque)
        for index, item in enumerate(list(value)):
            yield f"[{index}]" if ordered else f"[<{type_name(type(item))} element>]", item
    else:
        within = parts(value)
        if isinstance(within, dict):
            for name, item in within.items():
                yield key_step(name), item
        elif within is not None:
            yield "", within


def parts(value: Any) -> Any:
    """The saved parts of an object that msgpack does not support, one level deep. None if no part can be invalid.

    The checks are in the same order as in the serializer.
    """
    if isinstance(value, BaseException):
        # Saved as a descriptive string, which need not be exact.
        return None
    if hasattr(value, "model_dump") or (hasattr(value, "dict") and callable(value.dict)):
        # The attributes are cheap to read and include everything that is dumped.
        held = getattr(value, "__dict__", None)
        more = getattr(value, "__pydantic_extra__", None)
        return {**held, **more} if held is not None and more else held
    if hasattr(value, "get_secret_value"):
        return value.get_secret_value()
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, set | frozenset | deque):
        return list(value)
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "node") and hasattr(value, "arg"):
        return {"node": value.node, "arg": value.arg}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, Item):
        return {name: getattr(value, name, None) for name in value.__slots__}
    return None


def surrogate(value: Any, path: str) -> str | None:
    """The path of a string in `value` with a lone surrogate, which the serializer would replace by "?"; or None."""
    try:
        ormsgpack.packb(value, parts, _OPTIONS)
    except TypeError:
        # There may be another reason; only the search can tell.
        found = place(value, _is_no_unicode, path)
        return None if found is None else found[0]
    return None


def _is_no_unicode(value: Any) -> bool:
    if not isinstance(value, str) or value.isascii():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False
