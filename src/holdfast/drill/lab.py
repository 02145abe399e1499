"""The lab: runs an agent undisturbed, then kills it at one point after another and lets another process resume it.

The agent is a function in the caller's memory, so its processes are forked. They are forked by a process that is itself
forked first. It has only one thread, whatever the caller has, and loads everything that a run needs.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn

import msgspec
from msgspec.structs import replace

from holdfast.drill import child
from holdfast.drill.child import Task, TrialOutcome
from holdfast.drill.faults import PLACES, Fault
from holdfast.drill.points import spread
from holdfast.drill.report import DrillReport, Finding, Kill
from holdfast.drill.seeds import Seeds, Unloadable, require_loaded
from holdfast.drill.spec import Drill
from holdfast.drill.verdict import Judge, Trial
from holdfast.drill.watched import begin_otherwise
from holdfast.errors import HoldfastError, InvalidArgument


class DrillStep(msgspec.Struct, frozen=True, tag="step"):
    """The progress of the drill: kills done, kills in all, kills with findings."""

    done: int
    of: int
    failed: int


class _Report(msgspec.Struct, frozen=True, tag="report"):
    report: DrillReport


class _Refused(msgspec.Struct, frozen=True, tag="refused"):
    reason: str
    is_usage: bool


_FURTHER = 8
_Message = DrillStep | _Report | _Refused
Progress = Callable[[DrillStep], None]


def further_of(points: int | None) -> int:
    """How many second kills, interrupts, late calls and faults of each kind to try, if so many points are asked for."""
    return points or _FURTHER


def run(drill: Drill, progress: Progress | None = None) -> DrillReport:
    """Do the drill. HoldfastError if the undisturbed run fails, because then kills cannot be judged."""
    if not hasattr(os, "fork"):
        raise HoldfastError("the drill forks processes, which this system does not support")
    require_loaded()
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
                case DrillStep() as step:
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
        child.prepare()
        for message in _messages(drill, folder):
            os.write(pipe, msgspec.json.encode(message) + b"\n")
    finally:
        os._exit(0)


def _messages(drill: Drill, folder: Path) -> Iterator[_Message]:
    lab = Lab(drill, folder)
    try:
        yield from lab.drill()
    except HoldfastError as error:
        yield _Refused(str(error), isinstance(error, InvalidArgument))
    except Exception as error:  # noqa: BLE001 - the caller must get every error
        yield _Refused(f"the drill itself failed: {type(error).__name__}: {error}", is_usage=False)
    finally:
        lab.close()


class Disturbance(msgspec.Struct, frozen=True):
    """One disturbance: a kill at a point, two kills, an interrupt, a call that acts after its timeout, or a fault."""

    number: int
    place: str
    kind: Literal["kill", "twice", "interrupt", "slow"] | Fault = "kill"

    @property
    def folder(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def fault(self) -> Fault | None:
        return self.kind if self.kind in PLACES else None

    def task(self, task: Task) -> Task:
        """The task of the process that is disturbed."""
        match self.kind:
            case "kill" | "twice" | "interrupt":
                return replace(task, at=self.number, interrupts=self.kind == "interrupt")
            case "slow":
                return replace(task, slow=self.number)
            case fault:
                return replace(task, fault=fault, fault_at=self.number)

    def shown(self, place: str) -> str:
        words = {"twice": f"killed {place}", "interrupt": f"interrupted {place}", "kill": place}
        if self.kind in words:
            return words[self.kind]
        return f"{place}, {'acts after its timeout' if self.fault is None else PLACES[self.fault]}"


class Lab:
    """Runs the trials of one drill, each in its own folder."""

    def __init__(self, drill: Drill, folder: Path) -> None:
        self._drill = drill
        self._folder = folder
        self._first: Trial | None = None
        self._seeds: Seeds | None = None
        self._same_seed: str | None = None
        # How many points the resumed process passed, by the point of the kill.
        self._resumed_points: dict[int, int] = {}

    def drill(self) -> Iterator[DrillStep | _Report]:
        began = time.monotonic()
        first = self._first = self._undisturbed("first")
        self._start_seeds()
        judge = Judge(self._drill, first, self._second())
        places, timed = first.outcome.places, first.outcome.timed
        chosen = spread(len(places), self._drill.points)
        most = further_of(self._drill.points)
        fewer = spread(len(places), most)
        plans = [
            *(Disturbance(number, places[number - 1]) for number in chosen),
            *(Disturbance(number, places[number - 1], "twice") for number in fewer),
            *(Disturbance(number, places[number - 1], "interrupt") for number in fewer),
            *(Disturbance(number, timed[number - 1], "slow") for number in spread(len(timed), most)),
        ]
        for fault in self._drill.faults:
            calls = first.outcome.faultable[fault]
            plans += [Disturbance(number, calls[number - 1], fault) for number in spread(len(calls), most)]
        kills: list[Kill] = []
        yield DrillStep(0, len(plans), 0)
        for plan in plans:
            kills.append(self._disturbed(judge, plan))
            yield DrillStep(len(kills), len(plans), sum(not kill.passed for kill in kills))
        yield _Report(
            DrillReport(
                handler=self._drill.name,
                points=len(places),
                calls=len(first.calls),
                kills=tuple(kills[: len(chosen)]),
                further=tuple(kills[len(chosen) :]),
                same_seed=self._same_seed,
                unsteady=tuple(judge.unsteady),
                unjudged=tuple(judge.unjudged),
                seconds=round(time.monotonic() - began, 3),
            )
        )

    def close(self) -> None:
        """End the processes with other hash seeds."""
        if self._seeds is not None:
            self._seeds.close()

    def _start_seeds(self) -> None:
        try:
            self._seeds = Seeds(self._drill)
        except Unloadable as error:
            self._same_seed = str(error)

    def _second(self) -> Trial:
        """The second undisturbed run: later, and with another hash seed, as runs are resumed.

        If it fails there, the agent depends on something that this process has and a new one has not.
        """
        if self._seeds is not None:
            try:
                return self._undisturbed("spawned", 0)
            except HoldfastError as error:
                self.close()
                self._same_seed, self._seeds = str(error).splitlines()[0], None
        return self._undisturbed("second")

    def _undisturbed(self, name: str, seed: int | None = None) -> Trial:
        folder = self._new(name)
        later = 0 if self._first is None else 1
        status = self._live(Task(str(folder), later=later, played_from=self._played_from()), seed)
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

    def _disturbed(self, judge: Judge, plan: Disturbance) -> Kill:
        """Run the agent with one disturbance, or two, and let other processes resume it."""
        began = time.monotonic()
        folder, number, place = self._new(plan.folder), plan.number, plan.place
        first = Task(str(folder), played_from=self._played_from())
        status = self._live(plan.task(first))
        was_stopped = self._was_stopped(folder, status)
        if was_stopped and plan.kind == "twice":
            again = self._second_point(number)
            status = self._live(replace(first, at=again, is_resumed=True, later=1), number)
            if self._was_stopped(folder, status):
                place = f"{place}, then {child.log_of(folder).killed_at()}"
                status = self._live(replace(first, is_resumed=True, later=2), number + 1)
        elif was_stopped:
            status = self._live(replace(first, is_resumed=True, later=1), number)
        trial = self._trial(folder, status)
        seconds = round(time.monotonic() - began, 3)
        if plan.kind == "kill":
            self._resumed_points[number] = len(trial.outcome.places)
        if was_stopped or plan.kind == "slow" or trial.outcome.was_faulted:
            return judge.judge(number, plan.shown(place), trial, seconds)
        # The run took another path than the undisturbed one and ended before the point.
        why = "not reached" if plan.fault is None else "without effect"
        kill = judge.judge(number, plan.shown(f"{place} ({why})"), trial, seconds)
        if trial.outcome.failure is not None:
            failed = Finding("failed", f"the run failed before it was killed: {trial.outcome.failure}")
            kill = replace(kill, findings=(failed,))
        return kill

    def _was_stopped(self, folder: Path, status: int | None) -> bool:
        """Whether a process was killed or interrupted as planned: it left no outcome."""
        if status is None or child.outcome_of(folder) is not None:
            return False
        return (
            os.waitstatus_to_exitcode(status) in (-signal.SIGKILL, 0) and child.log_of(folder).killed_at() is not None
        )

    def _second_point(self, number: int) -> int:
        """The point for the second kill: another one for each first point, so that all are tried."""
        return 1 + number % max(self._resumed_points.get(number, 1), 1)

    def _trial(self, folder: Path, status: int | None) -> Trial:
        log = child.log_of(folder)
        outcome = child.outcome_of(folder)
        if outcome is None:
            outcome = TrialOutcome(failure=_ending(status, self._drill.timeout))
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

    def _live(self, task: Task, seed: int | None = None) -> int | None:
        """Let a process live, with another hash seed if a number of one is given; return its wait status."""
        if self._seeds is None or seed is None:
            return child.forked(self._drill, task)
        return self._seeds.live(task, seed)


def _ending(status: int | None, timeout: float) -> str:
    """The reason for a process that left no outcome."""
    if status is None:
        return f"it did not end within {timeout:g} seconds; if it needs longer, give timeout="
    code = os.waitstatus_to_exitcode(status)
    return f"its process ended by itself, {f'by signal {-code}' if code < 0 else f'with status {code}'}"
