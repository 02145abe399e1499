"""The world log: a record of the calls that were really made in a run of the drill, independent of Holdfast.

The drill judges a run by this file and never by the journal. A line is written before and after each call, and survives
the process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.codec import msgpack
from holdfast.codec.typed import StateType
from holdfast.errors import Unsupported
from holdfast.redaction import REDACTED
from holdfast.runs.tools import Happened, NotDone

Kind = Literal["model", "read", "idempotent", "irreversible", "probe"]


class StartedCall(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """A function is about to be called. `entry` and `step` tell where in the journal the call belongs."""

    call: int
    kind: Kind
    name: str
    arguments: str  # a digest: equal for equal arguments
    thread: int
    step: int
    entry: str
    key: str | None = None  # the idempotency key passed to it
    may_give_up: bool = False


class EndedCall(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The call with this number, of the same process, has ended."""

    call: int
    result: bytes | None = None  # None also for a result that cannot be stored
    error: str | None = None
    not_done: bool = False  # the error means that nothing was done


class Killed(msgspec.Struct, frozen=True, tag="killed"):
    """The process ends here. Another process writes the lines that follow."""

    place: str


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """The run asked for the outcome of a call, and the drill answered."""

    name: str
    arguments: str
    happened: bool


Line = StartedCall | EndedCall | Killed | Settled


class Called(msgspec.Struct, frozen=True):
    """One call: its start, its end (None if it did not end), and whether it was before the kill."""

    started: StartedCall
    ended: EndedCall | None
    before: bool

    @property
    def returned(self) -> bool:
        return self.ended is not None and self.ended.error is None

    @property
    def was_not_done(self) -> bool:
        return self.ended is not None and self.ended.not_done


class WorldLog:
    """Writes and reads the log of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: Line) -> None:
        """Append a complete line and sync it."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, msgspec.json.encode(line) + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def lines(self) -> list[Line]:
        if not self._path.exists():
            return []
        return [msgspec.json.decode(line, type=Line) for line in self._path.read_bytes().splitlines()]

    def calls(self) -> list[Called]:
        """Every call of the run, in the order of their starts."""
        started: list[tuple[int, StartedCall]] = []
        ended: dict[tuple[int, int], EndedCall] = {}
        process = 0
        for line in self.lines():
            match line:
                case Killed():
                    process += 1
                case StartedCall():
                    started.append((process, line))
                case EndedCall():
                    ended[process, line.call] = line
                case Settled():
                    pass
        return [Called(line, ended.get((number, line.call)), number < process) for number, line in started]

    def killed_at(self) -> str | None:
        """The place at which the last process was stopped."""
        return next((line.place for line in reversed(self.lines()) if isinstance(line, Killed)), None)

    def truth(self, thread: int, step: int, entry: str) -> Happened | NotDone:
        """The real outcome of a call, for a probe or a question."""
        for called in reversed(self.calls()):
            started = called.started
            if (started.thread, started.step, started.entry) == (thread, step, entry) and started.kind != "probe":
                if called.ended is not None and called.ended.result is not None:
                    return Happened(msgpack.decode(called.ended.result))
                if called.returned:
                    return Happened()
        return NotDone()


def stored(result: Any, declared: StateType | None = None) -> bytes | None:
    """A result as the log stores it; None if it cannot be stored. `declared` is its type, if it is not plain data."""
    if declared is not None:
        with suppress(Unsupported):  # plain data, although the tool declares another type
            return msgpack.encode(declared.to_plain(result, hidden=REDACTED))
    try:
        msgpack.check(result, is_state=False)
        return msgpack.encode(result)
    except Unsupported:
        return None
