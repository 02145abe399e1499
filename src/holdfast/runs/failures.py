"""Failures of calls: how they are recorded, and raised again when a program that went on from one is run again.

What a program did after a call failed may stand in for it. Run again after a crash, the call might succeed, and the
program would act in both ways. So the failure is raised again, as the class that the program catches.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from holdfast.errors import CallFailed
from holdfast.redaction import AS_IS, Redaction

_TEXT_CHARACTERS = 500


def text_of(error: BaseException, redaction: Redaction = AS_IS) -> str:
    """An error as a journal keeps it: where its class is from, and its message, redacted before it is cut."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {redaction.message(str(error))}"[:_TEXT_CHARACTERS]


def again(text: str) -> Exception:
    """The error of a text, of the class it had if the program has loaded that, else CallFailed.

    Nothing is imported for a stored name, and no code of the class is run to make it: attributes are not kept.
    """
    name, _, message = text.partition(": ")
    kind = _loaded(name)
    if kind is None:
        return CallFailed(text)
    native: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    try:
        error: Exception = native.__new__(kind)
        error.args = (message,)
        str(error)
    except Exception:  # noqa: BLE001 - made in a way of its own, or shows itself by attributes it does not have
        return CallFailed(text)
    return error


def behind(error: BaseException) -> Iterator[BaseException]:
    """An error and everything that led to it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        found = todo.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            todo += [found.__cause__, found.__context__]
            if isinstance(found, BaseExceptionGroup):
                todo += found.exceptions


def _loaded(name: str) -> type[Exception] | None:
    """The exception class of a name in a module that was imported already.

    Only what stands there is looked up: asked for an attribute, a module may import what it was told to.
    """
    if len(name) > _TEXT_CHARACTERS:
        return None
    module, _, rest = name.rpartition(".")
    found: object = vars(builtins).get(rest) if not module else None
    while module and found is None:
        if module in sys.modules:
            found = sys.modules[module]
            for part in rest.split("."):
                found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
            break
        module, _, outer = module.rpartition(".")
        rest = f"{outer}.{rest}"
    return found if isinstance(found, type) and issubclass(found, Exception) else None
