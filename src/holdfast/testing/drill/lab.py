"""The lab: runs an agent undisturbed, then kills it at one point after another and lets another process resume it.

The agent is a function in the caller's memory, so its processes are forked. They are forked by a process that is itself
forked first. It has only one thread, whatever the caller has, and loads everything that a run needs.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.testing.drill import child
from holdfast.testing.drill.child import Outcome, Task
from holdfast.testing.drill.judging import Judge
from holdfast.testing.drill.points import spread
from holdfast.testing.drill.report import DrillReport, Finding, Kill
from holdfast.testing.drill.spec import Drill
from holdfast.testing.drill.trial import Trial
from holdfast.testing.drill.watching import begin_otherwise


class Step(msgspec.Struct, frozen=True, tag="step"):
    """The progress of the drill: kills done, kills in all, kills with findings."""

    done: int
    of: int
    failed: int


class _Report(msgspec.Struct, frozen=True, tag="report"):
    report: DrillReport


class _Refused(msgspec.Struct, frozen=True, tag="refused"):
    reason: str
    is_usage: bool


_POLL_SECONDS = 0.02
_MOMENT_SECONDS = 0.001
_Message = Step | _Report | _Refused
Progress = Callable[[Step], None]


def run(drill: Drill, progress: Progress | None = None) -> DrillReport:
    """Do the drill. HoldfastError if the undisturbed run fails, because then kills cannot be judged."""
    if not hasattr(os, "fork"):
        raise HoldfastError("the drill forks processes, which this system does not support")
    with tempfile.TemporaryDirectory(prefix="holdfast-drill-", dir=_memory()) as folder:
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 and later warn about forking with threads. The forked process runs no other thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            os.close(reading)
            _serve(drill, Path(folder), writing)
        os.close(writing)
        try:
            return _read(reading, progress)
        finally:
            os.close(reading)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # if it had no time to create its process group
            os.waitpid(pid, 0)


def _memory() -> str | None:
    """A folder in memory, if there is one. A kill keeps written data, synced or not, and syncs take long."""
    memory = "/dev/shm"  # noqa: S108 - a separate folder is created in it
    return memory if os.access(memory, os.W_OK) else None


def _read(pipe: int, progress: Progress | None) -> DrillReport:
    rest = b""
    while block := os.read(pipe, 1 << 16):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            message: _Message = msgspec.json.decode(line, type=_Message)
            match message:
                case Step() as step:
                    if progress is not None:
                        progress(step)
                case _Report(report=report):
                    return report
                case _Refused(reason=reason, is_usage=is_usage):
                    raise InvalidArgument(reason) if is_usage else HoldfastError(reason)
    raise HoldfastError("the process that runs the drill ended without a message")


def _serve(drill: Drill, folder: Path, pipe: int) -> NoReturn:
    """Act as the process that forks the others."""
    try:
        os.setpgid(0, 0)
        importlib.import_module("holdfast.stores.sqlite")  # once, instead of in every child
        gc.freeze()  # the caller's objects are not collected here or in the children
        for message in _messages(drill, folder):
            os.write(pipe, msgspec.json.encode(message) + b"\n")
    finally:
        os._exit(0)


def _messages(drill: Drill, folder: Path) -> Iterator[_Message]:
    try:
        yield from Lab(drill, folder).drill()
    except HoldfastError as error:
        yield _Refused(str(error), isinstance(error, InvalidArgument))
    except Exception as error:  # noqa: BLE001 - the caller must get every error
        yield _Refused(f"the drill itself failed: {type(error).__name__}: {error}", is_usage=False)


class Lab:
    """Runs the trials of one drill, each in its own folder."""

    def __init__(self, drill: Drill, folder: Path) -> None:
        self._drill = drill
        self._folder = folder
        self._first: Trial | None = None

    def drill(self) -> Iterator[Step | _Report]:
        began = time.monotonic()
        first = self._first = self._undisturbed("first")
        judge = Judge(self._drill, first, self._undisturbed("second"))
        places = first.outcome.places
        chosen = spread(len(places), self._drill.points)
        kills: list[Kill] = []
        yield Step(0, len(chosen), 0)
        for number in chosen:
            kills.append(self._killed(judge, number, places[number - 1]))
            yield Step(len(kills), len(chosen), sum(not kill.passed for kill in kills))
        yield _Report(
            DrillReport(
                handler=self._drill.name,
                points=len(places),
                calls=len(first.calls),
                kills=tuple(kills),
                unsteady=tuple(judge.unsteady),
                unjudged=tuple(judge.unjudged),
                seconds=round(time.monotonic() - began, 3),
            )
        )

    def _undisturbed(self, name: str) -> Trial:
        folder = self._new(name)
        status = self._live(Task(str(folder), played_from=self._played_from()))
        trial = self._trial(folder, status)
        outcome = trial.outcome
        if outcome.failure is not None:
            if outcome.is_usage:
                raise InvalidArgument(outcome.failure)
            which = "an undisturbed run" if self._first is None else "the second undisturbed run"
            what = f"\n{outcome.trace}" if outcome.trace else f" {outcome.failure}"
            raise HoldfastError(f"{self._drill.name} failed in {which}:{what}")
        self._require_same_start(trial)
        return trial

    def _killed(self, judge: Judge, number: int, place: str) -> Kill:
        began = time.monotonic()
        folder = self._new(f"point-{number}")
        status = self._live(Task(str(folder), at=number, played_from=self._played_from()))
        was_killed = status is not None and os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        if was_killed:
            status = self._live(Task(str(folder), is_resumed=True, played_from=self._played_from()))
        trial = self._trial(folder, status)
        seconds = round(time.monotonic() - began, 3)
        if was_killed:
            return judge.judge(number, place, trial, seconds)
        # The run took another path than the undisturbed one and ended before the point.
        kill = judge.judge(number, f"{place} (not reached)", trial, seconds)
        if trial.outcome.failure is not None:
            failed = Finding("failed", f"the run failed before it was killed: {trial.outcome.failure}")
            kill = msgspec.structs.replace(kill, findings=(failed,))
        return kill

    def _trial(self, folder: Path, status: int | None) -> Trial:
        log = child.log_of(folder)
        outcome = child.outcome_of(folder)
        if outcome is None:
            outcome = Outcome(failure=_ending(status, self._drill.timeout))
        return Trial(log.lines(), log.calls(), outcome)

    def _require_same_start(self, trial: Trial) -> None:
        """InvalidArgument unless what is watched starts as in the first run.

        Otherwise one run would be blamed for the changes of another.
        """
        if self._first is None:
            return
        begins = begin_otherwise(self._drill.watch, trial.outcome.seen_at_start, self._first.outcome.seen_at_start)
        if begins:
            raise InvalidArgument(
                f"what is watched differs at the start of a run ({'; '.join(begins)}): it still has changes of the "
                "first run, or it changes by itself. Watch paths relative to the current folder, which is new for each "
                "run, reset things in setup=, or watch a function that leaves out what differs."
            )

    def _played_from(self) -> str | None:
        return str(self._folder / "first") if self._drill.recorded and self._first is not None else None

    def _new(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _live(self, task: Task) -> int | None:
        """Fork a process and wait for it; return its wait status, or None if it had to be killed."""
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            child.live(self._drill, task)
        os.close(writing)
        try:
            return _await(pid, reading, time.monotonic() + self._drill.timeout)
        finally:
            os.close(reading)


def _await(pid: int, pipe: int, until: float) -> int | None:
    """The wait status of a process; None if it had to be killed. It and its children hold the other end of the pipe."""
    while time.monotonic() < until:
        # Usually no polling is needed: the pipe is closed when the process ends. Its children may keep it open.
        is_closed = bool(select.select([pipe], [], [], _POLL_SECONDS)[0])
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if is_closed:
            time.sleep(_MOMENT_SECONDS)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _ending(status: int | None, timeout: float) -> str:
    """The reason for a process that left no outcome."""
    if status is None:
        return f"it did not end within {timeout:g} seconds; if it needs longer, give timeout="
    code = os.waitstatus_to_exitcode(status)
    return f"its process ended by itself, {f'by signal {-code}' if code < 0 else f'with status {code}'}"
