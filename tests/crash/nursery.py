"""A nursery: one warm process, started once, that forks the children the crash tests kill.

Starting Python takes longer than everything a child does. Forking the test process itself would carry its threads and
open handles into the child; the nursery has neither.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.waiting import DEADLINE

ROOT = Path(__file__).resolve().parent.parent.parent

Program = Callable[[Path, int], None]
"""What a child runs: given the file with its task, and a pipe to report to."""


class Child:
    """A process of the nursery, and the lines it reports."""

    def __init__(self, nursery: Nursery, pid: int, pipe: int) -> None:
        self._nursery = nursery
        self._pipe = pipe
        self._rest = b""
        self._alive = True
        self.pid = pid
        self.ended = False
        self.code: int | None = None  # as subprocess has it: -9 after SIGKILL
        self.lines: list[str] = []

    def wait_for(self, lines: int) -> None:
        """Read until the child has reported so many lines, or has ended."""
        deadline = time.monotonic() + DEADLINE
        while len(self.lines) < lines and not self.ended:
            self._read(deadline)

    def wait_for_end(self) -> None:
        """Read to the last line and collect the process."""
        deadline = time.monotonic() + DEADLINE
        while not self.ended:
            self._read(deadline)
        self._collect()

    def kill(self) -> None:
        """SIGKILL, then read what it had reported by then."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_for_end()

    @property
    def failure(self) -> str | None:
        """The traceback of a child that failed by itself."""
        return next((json.loads(line[1:]) for line in self.lines if line.startswith("!")), None)

    def close(self) -> None:
        """Leave nothing running and nothing open."""
        if self._alive:
            self.kill()

    def _read(self, deadline: float) -> None:
        if not select.select([self._pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"the child reported {len(self.lines)} lines and then nothing for {DEADLINE:.0f} s")
        block = os.read(self._pipe, 1 << 16)
        self.ended = not block
        *lines, self._rest = (self._rest + block).split(b"\n")
        self.lines += [line.decode() for line in lines]

    def _collect(self) -> None:
        if self._alive:
            self._alive = False
            os.close(self._pipe)
            self.code = self._nursery.collect(self.pid)


class Nursery:
    """Starts children. A context manager: at its end no process is left.

    Each message to it is answered before the next is sent, so a stream needs no framing.
    """

    def __init__(self, *modules: str) -> None:
        """`modules` are imported once, before the first fork."""
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(DEADLINE)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # With coverage on, each child would leave a file of its own.
        environment.pop("COVERAGE_PROCESS_START", None)
        # The lab counts the calls that a child makes. Writing the byte code of a new checkout is not one of them.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.crash.nursery", str(theirs.fileno()), *modules],
                cwd=ROOT,
                env=environment,
                pass_fds=[theirs.fileno()],
            )

    def start(self, program: str, task: Path) -> Child:
        """Fork a child that runs `program`, named as "module:function"."""
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._socket, [f"{program} {task}".encode()], [writing])
        finally:
            os.close(writing)
        return Child(self, int(self._socket.recv(64)), reading)

    def warm(self, module: str) -> None:
        """Import a module, so that no child has to."""
        self._socket.send(f"warm {module}".encode())
        self._socket.recv(64)

    def collect(self, pid: int) -> int:
        """Wait until a process is gone, with all it held: a closed pipe alone does not say that its locks are free."""
        self._socket.send(f"collect {pid}".encode())
        return int(self._socket.recv(64))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
        self._process.wait(DEADLINE)


def _serve(connection: socket.socket) -> None:
    children: set[int] = set()
    while True:
        message, pipes, _, _ = socket.recv_fds(connection, 1 << 12, 1)
        if not message:
            break
        word, _, argument = message.decode().partition(" ")
        if word == "collect":
            children.discard(int(argument))
            status = os.waitpid(int(argument), 0)[1]
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        _warm(argument if word == "warm" else word.partition(":")[0])
        if word == "warm":
            connection.send(b"warm")
            continue
        pid = os.fork()
        if not pid:
            connection.close()
            _run(word, Path(argument), pipes[0])
        children.add(pid)
        os.close(pipes[0])
        connection.send(str(pid).encode())
    for pid in children:  # the test is gone: so must they be
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _warm(module: str) -> None:
    """Import the module of a program once, not in each child."""
    if module not in sys.modules:
        with suppress(Exception):  # the child fails in the same way, and reports it
            import_module(module)
        gc.collect()
        gc.freeze()  # a collection in a child would copy every page


def _run(program: str, task: Path, pipe: int) -> None:
    module, _, name = program.partition(":")
    try:
        run: Program = getattr(import_module(module), name)
        run(task, pipe)
    except BaseException:  # noqa: BLE001 - whatever it is, the test has to hear of it, and the fork must not go on
        os.write(pipe, f"!{json.dumps(traceback.format_exc())}\n".encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    # Warm: what every child needs is imported once, here.
    import_module("tests.crash.children")
    import_module("holdfast.stores.sqlite")
    import_module("holdfast.stores.log")
    import_module("holdfast.codec.jsontext")
    for module in sys.argv[2:]:
        import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _serve(connection)
