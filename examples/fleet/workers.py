"""The worker processes: started, killed, stopped, sent home. Every one of them is gone when the fleet is closed."""

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
    """So many workers on one store. One that ends is replaced, as systemd or Kubernetes would."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path, *, size: int) -> None:
        """`command` is what follows `holdfast worker`; what workers say goes to `log`."""
        self._command = [sys.executable, "-m", "holdfast", "worker", *command]
        self._environment = {**os.environ, **environment}
        self._log = log
        self._size = size
        self._vanished: list[tuple[float, subprocess.Popen[bytes]]] = []
        self._paused: list[tuple[float, subprocess.Popen[bytes]]] = []
        self._timers: list[threading.Timer] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.ended: list[int] = []  # exit codes of workers that nobody ended

    def look_after(self) -> None:
        """Replace the dead, and do what the time has come for with those that were stopped."""
        for worker in [worker for worker in self.workers if worker.poll() is not None]:
            self.workers.remove(worker)
            self.ended.append(worker.returncode)
        for worker in _due(self._vanished):
            _end(worker)
        self.workers += _due(self._paused)
        while len(self.workers) + len(self._paused) < self._size:
            self.workers.append(self._started())

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """SIGKILL. On this machine everybody can see that it is dead."""
        self.workers.remove(worker)
        _end(worker)

    def vanish(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        """Let it stop in the middle of whatever it does, and never go on: like a machine whose network is gone.

        For so many seconds it cannot be proven dead. Then it is killed.
        """
        self.workers.remove(worker)
        worker.send_signal(signal.SIGSTOP)
        self._vanished.append((time.monotonic() + seconds, worker))

    def pause(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        """Let it stop, and go on after so many seconds as if nothing had been: like a virtual machine that is moved."""
        self.workers.remove(worker)
        worker.send_signal(signal.SIGSTOP)
        # By a thread of its own: whoever looks after the fleet may be busy with the server when the time has come.
        timer = threading.Timer(seconds, worker.send_signal, [signal.SIGCONT])
        self._timers.append(timer)
        timer.start()
        self._paused.append((time.monotonic() + seconds, worker))

    def send_home(self) -> None:
        """SIGTERM: a worker ends the step it is in, and goes."""
        for timer in self._timers:
            timer.join()
        self.workers += [worker for _, worker in self._paused]
        self._paused.clear()
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            code = worker.wait(PATIENCE)
            # One that was started a moment ago knows nothing of SIGTERM yet, and dies of it.
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
    """Those whose time has come, taken from the list."""
    due = [each for each in stopped if each[0] <= time.monotonic()]
    for each in due:
        stopped.remove(each)
    return [worker for _, worker in due]


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait(PATIENCE)
