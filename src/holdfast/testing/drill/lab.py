"""The lab: runs an agent undisturbed, then kills it at one point after the other and lets another process go on.

The agent is a function in the memory of the caller, so its processes are forked. They are forked by one process that is
forked itself, first: it has one thread, whatever the caller has, and everything that a run needs is loaded in it.
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
    """How far the drill is: so many kills of so many, of which so many found something."""

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
    """Do the drill. HoldfastError if the undisturbed run fails; nothing can be said of the killed ones then."""
    if not hasattr(os, "fork"):
        raise HoldfastError("the drill forks processes, and this system cannot")
    with tempfile.TemporaryDirectory(prefix="holdfast-drill-", dir=_memory()) as folder:
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 and later warn of forking with threads. What is forked here runs no thread but this one.
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
                os.kill(pid, signal.SIGKILL)  # if it had no time to have a group of its own
            os.waitpid(pid, 0)


def _memory() -> str | None:
    """A folder in memory, where there is one: a kill leaves what was written, synced or not, and syncs take long."""
    memory = "/dev/shm"  # noqa: S108 - a folder of its own is made in it
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
    raise HoldfastError("the process that runs the drill ended without a word")


def _serve(drill: Drill, folder: Path, pipe: int) -> NoReturn:
    """Be the process that forks the others."""
    try:
        os.setpgid(0, 0)
        importlib.import_module("holdfast.stores.sqlite")  # once, and not in every child
        gc.freeze()  # what the caller holds is none of our business, nor that of the children
        for message in _messages(drill, folder):
            os.write(pipe, msgspec.json.encode(message) + b"\n")
    finally:
        os._exit(0)


def _messages(drill: Drill, folder: Path) -> Iterator[_Message]:
    try:
        yield from Lab(drill, folder).drill()
    except HoldfastError as error:
        yield _Refused(str(error), isinstance(error, InvalidArgument))
    except Exception as error:  # noqa: BLE001 - the caller must hear of it, whatever it is
        yield _Refused(f"the drill itself failed: {type(error).__name__}: {error}", is_usage=False)


class Lab:
    """Runs the trials of one drill, each in a folder of its own."""

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
            which = "a run that nobody disturbed" if self._first is None else "the second run that nobody disturbed"
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
        # The run went another way than the undisturbed one did, and ended before.
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
        """What is watched must begin as it began: else what one run did would be held against the next."""
        if self._first is None:
            return
        begins = begin_otherwise(self._drill.watch, trial.outcome.seen_at_start, self._first.outcome.seen_at_start)
        if begins:
            raise InvalidArgument(
                f"what is watched does not begin alike in each run ({'; '.join(begins)}): what the first run did is "
                "still there, or it differs by itself; watch paths that are relative to the current folder, a new one "
                "for each run, put things back in setup=, or watch a function that leaves out what differs"
            )

    def _played_from(self) -> str | None:
        return str(self._folder / "first") if self._drill.recorded and self._first is not None else None

    def _new(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _live(self, task: Task) -> int | None:
        """Fork a process and wait for its end; how it ended, None if it had to be ended."""
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
    """How a process ended; None if it had to be ended. It, and what it forked, holds the other end of the pipe."""
    while time.monotonic() < until:
        # Nothing is polled as a rule: the pipe is closed when the process goes. What it left behind may keep it open.
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
    """How a process ended that left no word."""
    if status is None:
        return f"it did not end in {timeout:g} seconds; if it needs longer, give timeout="
    code = os.waitstatus_to_exitcode(status)
    return f"its process ended by itself, {f'by signal {-code}' if code < 0 else f'with status {code}'}"
