"""The scripted provider as a process, and what it counted."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


class Server:
    """A provider that runs; `folder` is where it counts."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self.address = address

    @property
    def requests(self) -> list[dict[str, Any]]:
        path = self._folder / "requests.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def turns(self) -> list[int]:
        """Which turn of the script each request asked for."""
        return [request["turn"] for request in self.requests]

    @contextlib.contextmanager
    def holding(self, number: int, *, chunks: int = 0) -> Iterator[None]:
        """Let a request wait for its answer, or for what comes after so many chunks, as long as the block lasts."""
        hold = self._folder / f"hold-{number}"
        hold.write_text(str(chunks))
        try:
            yield
        finally:
            hold.unlink()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    command = [sys.executable, str(Path(__file__).with_name("scripted_server.py")), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(folder, process.stdout.readline().strip())
        finally:
            process.kill()
