"""Check that objects of a user's classes are loaded as such, by comparing a value with what was loaded from it.

The serializer stores only the bare name of a class, so it may find another class. Pydantic loads dicts instead of
models in a model that does not validate what it dumped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from holdfast.adapters.langgraph.finding import parts
from holdfast.codec.storable import MAX_DEPTH, key_step, type_name
from holdfast.errors import Unsupported

# Packages whose classes do not depend on the application.
_STEADY: Final = frozenset(
    {"builtins", "collections", "datetime", "decimal", "ipaddress", "langchain_core", "langgraph", "numpy", "pathlib"}
    | {"re", "uuid", "zoneinfo"}
)
_LEAVES: Final[frozenset[type]] = frozenset({type(None), bool, int, float, str, bytes})

# Types that msgpack supports. LangGraph loads subclasses of these as the base type, on purpose.
_NATIVE: Final = (dict, list, str, int, float, bytes, bytearray, memoryview, BaseException)


def is_steady(module: str) -> bool:
    """Whether a module belongs to Python, LangChain, LangGraph or numpy."""
    return module.partition(".")[0] in _STEADY


def compare(value: Any, loaded: Any, path: str) -> None:
    """Raise `Unsupported`, with the path, if an object of a user's class in `value` is something else in `loaded`."""
    _compare(value, loaded, path, MAX_DEPTH)


def _compare(value: Any, loaded: Any, path: str, room: int) -> None:
    kind = type(value)
    # None: a part that is not saved on purpose, such as an excluded field.
    if kind in _LEAVES or loaded is None or room <= 0:
        return
    if type(loaded) is not kind and _is_foreign(value, kind):
        raise Unsupported(
            path,
            f"a value of type {type_name(kind)} would be loaded as {type_name(type(loaded))}: LangGraph's serializer "
            "finds another class under that name, or the class does not accept the saved data",
        )
    for step, part, other in _pairs(value, loaded):
        _compare(part, other, path + step, room - 1)


def _is_foreign(value: Any, kind: type[Any]) -> bool:
    return not is_steady(kind.__module__) and (not isinstance(value, _NATIVE) or isinstance(value, Enum))


def _pairs(value: Any, loaded: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(value, dict):
        if type(loaded) is dict:
            for key, item in value.items():
                if key in loaded:
                    yield key_step(key), item, loaded[key]
    elif isinstance(value, list | tuple | deque) and not hasattr(value, "_asdict"):
        if isinstance(loaded, list | deque) and len(loaded) == len(value):
            for index, (item, other) in enumerate(zip(value, loaded, strict=True)):
                yield f"[{index}]", item, other
    elif type(loaded) is type(value) and not type(value).__module__.startswith("langchain_core."):
        within, others = parts(value), parts(loaded)
        if isinstance(within, dict) and isinstance(others, dict):
            fields: Any = getattr(type(value), "model_fields", None) or {}
            for name, item in within.items():
                if name in others and not getattr(fields.get(name), "exclude", None):
                    yield key_step(name), item, others[name]
