"""Exceptions of tools in recorded outcomes."""

from __future__ import annotations

import builtins
from contextlib import suppress


def error_record(error: BaseException) -> list[str]:
    """An exception as plain data."""
    return [type(error).__name__, str(error)]


def recorded_error(record: list[str]) -> Exception:
    """The exception of a recorded outcome. One that Python does not have itself is a RuntimeError with its name."""
    name, text = record
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(TypeError):
            return kind(text)
    return RuntimeError(f"{name}: {text}")
