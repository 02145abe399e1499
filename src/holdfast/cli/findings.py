"""Problems that checks found, as lines for people and as data for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

from holdfast.cli.output import write

_SEQS_SHOWN = 8


class Finding(Protocol):
    """A problem that a method of the handle reported."""

    @property
    def thread(self) -> str | None: ...

    @property
    def seqs(self) -> tuple[int, ...]: ...

    @property
    def what(self) -> str: ...


def lines(found: Iterable[Finding]) -> list[str]:
    """Return one line per problem. Names are escaped: they may hold terminal control characters."""
    return [f"{_place(each)}{_printable(each.what)}" for each in found]


def data(found: Iterable[Finding]) -> list[dict[str, Any]]:
    return [{"thread": each.thread, "seqs": list(each.seqs), "what": each.what} for each in found]


def put(text: str) -> None:
    write(f"{text}\n")


def put_json(value: Any) -> None:
    write(f"{json.dumps(value, indent=2)}\n")


def counted(number: int, what: str) -> str:
    """Return a number and its noun, in the plural unless it is 1."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _place(found: Finding) -> str:
    seqs = [str(seq) for seq in found.seqs[:_SEQS_SHOWN]]
    if len(found.seqs) > _SEQS_SHOWN:
        seqs.append("…")
    checkpoints = f"checkpoint{'' if len(found.seqs) == 1 else 's'} {', '.join(seqs)}" if seqs else ""
    thread = "" if found.thread is None else f"thread {found.thread!a}"
    place = ", ".join(filter(None, (thread, checkpoints)))
    return f"{place}: " if place else ""


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
