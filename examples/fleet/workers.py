"""The worker processes: started, killed, paused and stopped. All of them have ended when the fleet is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PATIENCE: Final = 30.0  # seconds for a worker to end


class Fleet:
    """A number of workers on one store. A worker that ends is replaced, as by systemd or Kubernetes."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path, *, size: int) -> None:
        """`command` is the arguments of `holdfast worker`; the output of workers goes to `log`."""
        self._command = [sys.executable, "-m", "holdfast", "worker", *command]
        self._environment = {**os.environ, **environment}
        self._log = log
        self._size = size
        self._vanished: list[tuple[float, subprocess.Popen[bytes]]] = []
        self._paused: list[tuple[float, subprocess.Popen[bytes]]] = []
        self._timers: list[threading.Timer] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.ended: list[int] = []  # exit codes of workers that ended by themselves

    def look_after(self) -> None:
        """Replace dead workers, and continue or kill stopped ones whose time has come."""
        for worker in [worker for worker in self.workers if worker.poll() is not None]:
            self.workers.remove(worker)
            self.ended.append(worker.returncode)
        for worker in _due(self._vanished):
            _end(worker)
        self.workers += _due(self._paused)
        while len(self.workers) + len(self._paused) < self._size:
            self.workers.append(self._started())

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Send SIGKILL. Other processes on this machine can see that the worker is dead."""
        self.workers.remove(worker)
        _end(worker)

    def vanish(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        """Stop a worker at any point, for ever, like a machine that lost its network.

        For the given seconds it cannot be proven dead. Then it is killed.
        """
        self.workers.remove(worker)
        worker.send_signal(signal.SIGSTOP)
        self._vanished.append((time.monotonic() + seconds, worker))

    def pause(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        """Stop a worker and continue it after the given seconds, like a virtual machine that is moved."""
        self.workers.remove(worker)
        worker.send_signal(signal.SIGSTOP)
        # In a separate thread, because the main thread may be busy with the server at that time.
        timer = threading.Timer(seconds, worker.send_signal, [signal.SIGCONT])
        self._timers.append(timer)
        timer.start()
        self._paused.append((time.monotonic() + seconds, worker))

    def send_home(self) -> None:
        """Send SIGTERM: each worker ends its step and exits."""
        for timer in self._timers:
            timer.join()
        self.workers += [worker for _, worker in self._paused]
        self._paused.clear()
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            code = worker.wait(PATIENCE)
            # A worker that has just started does not handle SIGTERM yet, and dies of it.
            if code not in (0, -signal.SIGTERM):
                self.ended.append(code)
        self.workers.clear()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in self._timers:
            timer.cancel()
        for worker in [*self.workers, *(worker for _, worker in [*self._vanished, *self._paused])]:
            _end(worker)


def _due(stopped: list[tuple[float, subprocess.Popen[bytes]]]) -> list[subprocess.Popen[bytes]]:
    """Remove and return the stopped workers whose time has come."""
    due = [each for each in stopped if each[0] <= time.monotonic()]
    for each in due:
        stopped.remove(each)
    return [worker for _, worker in due]


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait(PATIENCE)
