"""The ledger: an independent record of all calls and effects.

One file per run, append only, one line per write, each write synced. So a kill leaves whole lines. Holdfast neither
reads nor writes it, so the ledger can judge Holdfast.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

import msgspec

Event = Literal["claimed", "left", "called", "acted", "heard", "looked"]


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line.

    Events: a worker "claimed" the run and "left" it (`text` is how); a tool or the model was "called"; a tool "acted"
    on the world, with `key`; the agent "heard" the answer; a probe or person "looked" whether a
    call in doubt had happened (`text` is the answer).
    """

    event: Event
    call: str = ""
    key: str = ""
    text: str = ""
    pid: int
    at: float


class Ledger:
    """The files, in a folder that all processes share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, run: str, event: Event, call: str = "", *, key: str = "", text: str = "") -> None:
        """Add a line. When this returns, it is on disk."""
        note = Note(event=event, call=call, key=key, text=text, pid=os.getpid(), at=time.time())
        file = os.open(self._folder / f"{run}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, msgspec.json.encode(note) + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def notes(self, run: str) -> list[Note]:
        """All lines of a run, in the order in which they were written."""
        try:
            written = (self._folder / f"{run}.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        return [msgspec.json.decode(line, type=Note) for line in written.splitlines()]

    def happened(self, run: str, call: str) -> bool:
        """Whether a call has changed the world so far."""
        return any(note.event == "acted" and note.call == call for note in self.notes(run))
