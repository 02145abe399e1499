"""Looking at the world outside: what is watched, as it is before and after a run, and how two looks differ."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.codec import packed
from holdfast.errors import HoldfastError, Unsupported
from holdfast.testing.drill.spec import Watched
from holdfast.threads.diff import diff

_SHOWN = 3  # changes that a text names


def look(watch: Sequence[Watched]) -> list[bytes]:
    """What is watched, as it is now. HoldfastError for what a function returns and cannot be compared."""
    seen: list[bytes] = []
    for each in watch:
        value = each() if callable(each) else _content(Path(each))
        try:
            packed.check(value)
        except Unsupported as refused:
            raise HoldfastError(
                f"what the watched function {name_of(each)} returns cannot be compared: {refused}"
            ) from refused
        seen.append(packed.encode(value))
    return seen


def name_of(watched: Watched) -> str:
    if isinstance(watched, str | os.PathLike):
        return os.fspath(watched)
    return str(getattr(watched, "__qualname__", type(watched).__name__))


def differences(watch: Sequence[Watched], seen: Sequence[bytes], wanted: Sequence[bytes]) -> list[str]:
    """What is not as it was in the undisturbed run, each in a line; no content is shown."""
    return [
        f"{name_of(each)}: {_difference(packed.decode(now), packed.decode(then))}"
        for each, now, then in zip(watch, seen, wanted, strict=True)
        if now != then
    ]


def changes(now: Any, then: Any) -> str:
    """Where two values differ."""
    found = diff(then, now).changes
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(f"{change.kind} {change.path}" for change in found[:_SHOWN]) + more


def _content(path: Path) -> Any:
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
    return path.read_bytes() if path.exists() else None


def _difference(now: Any, then: Any) -> str:
    if isinstance(now, bytes) and isinstance(then, bytes):
        lines, wanted = now.splitlines(), then.splitlines()
        if len(lines) != len(wanted):
            return f"{_lines(len(lines))}, {len(wanted)} in the undisturbed run"
        first = next(
            (number for number, pair in enumerate(zip(lines, wanted, strict=True), 1) if len(set(pair)) > 1), 1
        )
        return f"line {first} is another one than in the undisturbed run"
    if now is None or then is None:
        return "not there" if now is None else "not there in the undisturbed run"
    return changes(now, then)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
