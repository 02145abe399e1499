"""The world outside: what was called and what happened, counted by nobody but itself.

One file for each run, only ever appended to, one line per write and each write synced: a line is there whole or not at
all, whoever is killed. Holdfast neither reads nor writes it, so it can judge Holdfast.
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

    A worker "claimed" the run and "left" it (`text` says how); a tool or the model was "called"; the world changed
    because a tool "acted", under `key`; the agent "heard" the answer, so it was recorded; somebody "looked" whether a
    call in doubt had happened, and `text` says what was found.
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
        """Whether a call changed the world, as far as anybody knows by now."""
        return any(note.event == "acted" and note.call == call for note in self.notes(run))
