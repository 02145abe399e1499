"""An example at work: its processes, the provider that it asks, and what it ordered."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import holdfast
from tests.examples.mortal import KEYS, LEDGER, Moment, Mortal, started
from tests.examples.serving import EXAMPLES, Server, serving
from tests.waiting import DEADLINE, until

STORE = "agent.db"


class Shopping:
    """One run of an example on a provider, in a folder of its own, in as many processes as it takes."""

    def __init__(self, folder: Path, example: str, server: Server) -> None:
        self._folder = folder
        self._example = example
        self._arguments = (server.address, STORE)
        self.server = server

    def as_a_user(self) -> subprocess.CompletedProcess[str]:
        """Run it from the command line."""
        return subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLES / self._example), *self._arguments],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **KEYS},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    def start(self, dies: Moment = "never") -> contextlib.AbstractContextManager[Mortal]:
        return started(self._folder, self._example, *self._arguments, dies=dies)

    def to_its_end(self) -> str:
        """Run it again, undisturbed; what it prints."""
        with self.start() as process:
            assert process.end() == 0, process.output
            return process.output

    def dies(self, moment: Moment) -> None:
        with self.start(moment) as process:
            assert process.end() == -signal.SIGKILL, process.output

    def killed_in_flight(self, request: int, *, chunks: int = 0, shown: str = "") -> None:
        """Kill it when the server has counted so many requests, and this much of the last answer was shown."""
        with self.server.holding(request, chunks=chunks), self.start() as process:
            until(
                lambda: process.has_ended or (len(self.server.turns) == request and shown in process.output),
                f"the server has counted request {request} and {shown!r} is shown",
            )
            process.kill()

    @property
    def orders(self) -> list[str]:
        """What was ordered, without the keys."""
        path = self._folder / LEDGER
        return [line.partition(",")[2] for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    @property
    def last_order(self) -> str:
        """How the newest order stands in the journal."""
        with holdfast.open(self._folder / STORE) as hf:
            return [effect.status for effect in hf.effects("shopping") if effect.name == "order"][-1]


@contextlib.contextmanager
def shopping(folder: Path, example: str) -> Iterator[Shopping]:
    with serving(folder) as server:
        yield Shopping(folder, example, server)
