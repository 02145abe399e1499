"""Watched files and functions: read them before and after a run, and compare two readings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from holdfast.codec import msgpack
from holdfast.drill.spec import Watched
from holdfast.errors import HoldfastError, Unsupported
from holdfast.threads.diff import diff

View = Literal["contents", "counts", "sizes", "nothing"]  # how closely two values are compared
_SHOWN = 3  # changes that a message lists


def look(watch: Sequence[Watched]) -> list[bytes]:
    """The current values of what is watched. HoldfastError if a function returns a value that cannot be compared."""
    seen: list[bytes] = []
    for each in watch:
        value = each() if callable(each) else _content(Path(each))
        try:
            msgpack.check(value)
        except Unsupported as refused:
            raise HoldfastError(
                f"the value that the watched function {name_of(each)} returns cannot be compared: {refused}"
            ) from refused
        seen.append(msgpack.encode(value))
    return seen


def name_of(watched: Watched) -> str:
    if isinstance(watched, str | os.PathLike):
        return os.fspath(watched)
    return str(getattr(watched, "__qualname__", type(watched).__name__))


def begin_otherwise(watch: Sequence[Watched], seen: Sequence[bytes], wanted: Sequence[bytes]) -> list[str]:
    """Watched things that differ at the start from the first run, one line each. No content is shown."""
    return [
        f"{name_of(each)}: {difference(msgpack.decode(now), msgpack.decode(then), 'contents')}"
        for each, now, then in zip(watch, seen, wanted, strict=True)
        if now != then
    ]


def common_view(first: Any, second: Any) -> View:
    """The closest comparison in which two values are equal."""
    views: tuple[View, ...] = ("contents", "counts", "sizes", "nothing")
    return next(view for view in views if not difference(first, second, view))


def difference(now: Any, then: Any, view: View) -> str:
    """The difference of two values in a view; empty if they are equal. No content is shown."""
    seen, wanted = _through(view, now), _through(view, then)
    if msgpack.encode(seen) == msgpack.encode(wanted):
        return ""
    if now is None or then is None:
        return "missing" if now is None else "missing in the undisturbed run"
    match now, then:
        case bytes(), bytes():
            return _in_lines(now.splitlines(), then.splitlines())
        case str(), str() if view != "contents":
            return _in_lines(now.splitlines(), then.splitlines())
        case (list(), list()) | (tuple(), tuple()) | (set(), set()) | (frozenset(), frozenset()) if view != "contents":
            return _in_number(len(now), len(then), "entry", "entries")
        case dict(), dict() if view == "sizes":
            return _in_number(len(now), len(then), "entry", "entries")
        case _:
            return _changes(seen, wanted)


def _through(view: View, value: Any) -> Any:
    """A value as a view shows it: "counts" replaces collections by their size, "sizes" also ignores keys."""
    if view == "contents":
        return value
    if view == "nothing":
        return None
    match value:
        case bytes():
            return len(value.splitlines())
        case str() if "\n" in value:
            return len(value.splitlines())
        case list() | tuple() | set() | frozenset():
            return len(value)
        case dict() if view == "counts":
            return {key: _through(view, each) for key, each in value.items()}
        case dict():
            return sorted(msgpack.encode(_through(view, each)) for each in value.values())
        case _:
            return value


def _changes(now: Any, then: Any) -> str:
    found = diff(then, now).changes
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(f"{change.kind} {change.path}" for change in found[:_SHOWN]) + more or "in another order"


def _content(path: Path) -> Any:
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
    return path.read_bytes() if path.exists() else None


def _in_lines(now: Sequence[object], then: Sequence[object]) -> str:
    if len(now) != len(then):
        return _in_number(len(now), len(then), "line", "lines")
    first = next((number for number, pair in enumerate(zip(now, then, strict=True), 1) if len(set(pair)) > 1), 1)
    return f"line {first} differs from the undisturbed run"


def _in_number(now: int, then: int, one: str, many: str) -> str:
    if now == then:
        return f"{many} with other sizes than in the undisturbed run"
    return f"{now} {one if now == 1 else many}, {then} in the undisturbed run"
