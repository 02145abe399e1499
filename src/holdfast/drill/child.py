"""A process of the drill: runs or resumes the agent until it ends."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec

import holdfast
from holdfast.codec import msgpack
from holdfast.codec.typed import state_type
from holdfast.drill.faults import Fault, Injector
from holdfast.drill.points import Countdown, Slept, counted
from holdfast.drill.spec import Drill
from holdfast.drill.stage import Book, Stage, Unplayable
from holdfast.drill.timeshift import STEP_SECONDS, agents_clocks, set_forward
from holdfast.drill.watched import look
from holdfast.drill.world import Killed, Settled, WorldLog
from holdfast.errors import CallTimedOut, Conflict, HoldfastError, InvalidArgument, Unsupported
from holdfast.handle import Holdfast
from holdfast.runs.drivers import is_async
from holdfast.runs.flusher import flusher
from holdfast.runs.handlers import options_of
from holdfast.runs.tools import Happened, NotDone
from holdfast.threads.scan import thread_named
from holdfast.types import PendingQuestion, Status
from holdfast.urls import open_store

THREAD = "drill"
_MOST_QUESTIONS = 100
_MOST_TIMES = 3  # how often a run is answered that one call did not happen
_MOST_RUNS = 1000
_MOMENT_MS = 2
_MOMENT_SECONDS = 0.001
_POLL_SECONDS = 0.02


class Task(msgspec.Struct, frozen=True):
    """The instructions for a process."""

    folder: str
    at: int = 0  # the point to be killed at; 0 for none
    interrupts: bool = False  # the process is interrupted at that point, not killed
    slow: int = 0  # the number of the call that acts after its timeout; 0 for none
    fault: Fault | None = None  # the fault to inject into the call of number `fault_at`
    fault_at: int = 0
    is_resumed: bool = False
    later: int = 0  # how often the time is set forward
    played_from: str | None = None  # the folder of the run whose calls are played back


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a process that finished the run or failed."""

    status: Status = "running"
    state: bytes = b""
    result: bytes = b""
    given_up: list[str] = []
    places: list[str] = []
    timed: list[str] = []  # the calls that may act after their timeouts
    faultable: dict[Fault, list[str]] = {}  # the calls that each fault can happen to
    was_faulted: bool = False
    seen_at_start: list[bytes] = []
    seen: list[bytes] = []
    failure: str | None = None
    is_usage: bool = False  # the failure is due to the definition of the drill, not to the agent
    trace: str = ""  # of the agent's own code; empty for errors of Holdfast, which tell what to do


class Stuck(HoldfastError):
    """The drill cannot finish the run as it is defined."""


class Diverged(HoldfastError):
    """The resumed agent took another way than the process before it, so a person would be asked."""


def log_of(folder: Path) -> WorldLog:
    return WorldLog(folder / "world.jsonl")


def outcome_of(folder: Path) -> TrialOutcome | None:
    """The outcome that the last process of a run left; None if it left none."""
    path = folder / "outcome"
    return msgspec.msgpack.decode(path.read_bytes(), type=TrialOutcome) if path.exists() else None


def live(drill: Drill, task: Task) -> NoReturn:
    """Run a process of the drill. Never returns, because a forked process must not continue as its parent."""
    try:
        set_forward(task.later * STEP_SECONDS)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        outcome = _outcome(drill, task)
        if outcome is not None:
            (Path(task.folder) / "outcome").write_bytes(msgspec.msgpack.encode(outcome))
    finally:
        os._exit(0)


def prepare() -> None:
    """Prepare a process that forks others: load the modules that all of them need."""
    importlib.import_module("holdfast.stores.sqlite")
    b"".decode("ascii")
    agents_clocks()
    gc.freeze()  # what is loaded is not collected here or in the forked processes


def forked(drill: Drill, task: Task) -> int | None:
    """Fork a process and wait for it; return its wait status, or None if it had to be killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        live(drill, task)
    os.close(writing)
    try:
        return _await(pid, reading, time.monotonic() + drill.timeout)
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


def _outcome(drill: Drill, task: Task) -> TrialOutcome | None:
    """The outcome of a process; None if it was interrupted, or if a fault ended it and the run is to be resumed."""
    folder = Path(task.folder)
    log = log_of(folder)
    countdown = Countdown(task.at, log, interrupts=task.interrupts)
    faults = Injector(task.fault, task.fault_at)
    try:
        _enter(folder)
        if not task.is_resumed:
            if drill.setup is not None:
                drill.setup()
            seen_at_start = look(drill.watch)
        else:
            seen_at_start = []
        book = None if task.played_from is None else Book(log_of(Path(task.played_from)).calls())
        stage = Stage(log, countdown, drill.stand_ins(), live=drill.live, book=book, slow=task.slow, faults=faults)
        flusher.is_off = True  # the points of a drill are its writes
        # A kill keeps written data, synced or not. Power failures are not tested here.
        slept = Slept(folder / "slept")
        store = counted(open_store(folder / "agent.db", namespace="default", durability="off"), countdown, slept)
        with Holdfast(store, tools=drill.declared()) as hf:
            hf.context.interceptor = stage
            try:
                status = _work(drill, hf, log, stage, slept)
            finally:
                stage.await_slow()
            if stage.refused is not None:
                raise stage.refused
            if countdown.interrupted is None:
                return _ended(drill, hf, status, countdown.places, seen_at_start, stage.timed, faults)
    except BaseException as error:  # noqa: BLE001 - the drill must get every error
        was_planned = faults.was_injected or (task.slow and isinstance(error, CallTimedOut))
        if countdown.interrupted is None and not was_planned:
            return _failed(error)
    log.write(Killed(countdown.interrupted or "after a fault"))
    return None


def _enter(folder: Path) -> None:
    """Change to a separate folder and redirect output: what agents print would disturb the report."""
    here = str(Path.cwd())
    sys.path[:] = [os.path.join(here, entry) for entry in sys.path]
    work = folder / "work"
    work.mkdir(exist_ok=True)
    os.chdir(work)
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(output, number)
    # Test runners replace these to capture output.
    sys.stdout = sys.stderr = os.fdopen(output, "w", buffering=1)


def _work(drill: Drill, hf: Holdfast, log: WorldLog, stage: Stage, slept: Slept) -> Status:
    """Run the agent and answer its questions until the run has ended; return its status."""
    told: Counter[Any] = Counter()
    question: PendingQuestion | None = None
    for _ in range(_MOST_QUESTIONS):
        status = asyncio.run(_run_async(drill, hf)) if is_async(drill.handler) else _run(drill, hf)
        if status not in ("waiting", "queued"):
            return status
        stage.await_slow()
        questions = list(hf.waiting())
        for question in questions:
            _tell(drill, hf, log, question, told)
        if not questions and status == "waiting":
            _sleep(hf, slept)
    last = "" if question is None else f", the last time {question.name!r}"
    raise Stuck(f"the run waited {_MOST_QUESTIONS} times and did not end{last}; make the agent wait less often")


def _sleep(hf: Holdfast, slept: Slept) -> None:
    """Let the time pass until a sleeping run is due."""
    store = hf.context.store
    rows = [row for _, row in store.runs(statuses=("waiting", "queued"), after=(0, 0), limit=_MOST_RUNS)]
    if any(row.status == "queued" for row in rows):
        return  # a late call has ended meanwhile, and its outcome is recorded
    due = [row.wake_at for row in rows if row.wake_at]
    if not due:
        raise Stuck("the run waits, and neither asks a question nor sleeps")
    slept.pass_time(max(min(due) - store.clock().now, 0) + _MOMENT_MS)


def _options(drill: Drill) -> dict[str, Any]:
    """The options of the run. Its state has the type that `holdfast.handler` declares; the start may be plain data."""
    declared = options_of(drill.handler, ())
    start = drill.start
    if declared.type is not None:
        with suppress(InvalidArgument):  # it is of the type already
            start = state_type(declared.type).from_plain(start)
    typed = {"type": declared.type, "schema_version": declared.schema_version}
    return {"start": start, "policy": drill.policy, **typed}


def _run(drill: Drill, hf: Holdfast) -> Status:
    with hf.run(THREAD, **_options(drill)) as run:
        if run.status == "running":
            result = drill.handler(run)
            if run.status == "running":
                _check_result(drill, result)
                run.finish(result)
    return run.status


async def _run_async(drill: Drill, hf: Holdfast) -> Status:
    async with hf.aio.run(THREAD, **_options(drill)) as run:
        if run.status == "running":
            result = await drill.handler(run)
            if run.status == "running":
                _check_result(drill, result)
                await run.finish(result)
    return run.status


def _check_result(drill: Drill, result: Any) -> None:
    try:
        msgpack.check(result)
    except Unsupported as refused:
        raise Stuck(f"the value that {drill.name} returns cannot be the result of a run: {refused}") from None


def _tell(drill: Drill, hf: Holdfast, log: WorldLog, question: PendingQuestion, told: Counter[Any]) -> None:
    """Answer a question of the run: from `answers`, or about a call from the world log.

    `told` counts the answers that a call was not done.
    """
    effect = next(each for each in hf.effects(question.thread) if each.number == question.effect)
    info = hf.run_info(question.thread)
    reason = "" if info is None or info.reason is None else info.reason
    if effect.status == "asked" and (question.about != "wait" or reason.startswith("the program did not repeat")):
        raise Diverged(f"after it was resumed, the agent did not ask for the same calls: {reason}")
    if question.about == "wait":
        if question.name not in drill.answers:
            answers = json.dumps({question.name: "…"}, ensure_ascii=False)
            raise Stuck(
                f"the run waits for an answer to {question.name!r}; pass one: answers={{{question.name!r}: …}}, or on "
                f"the command line --answers '{answers}'"
            )
        hf.answer(question.thread, question.name, drill.answers[question.name])
        return
    thread = thread_named(hf.context.store, question.thread)
    truth = log.truth(0 if thread is None else thread.position.thread, effect.step, effect.key)
    place = (question.thread, effect.step, effect.key)
    if told[place] == _MOST_TIMES:
        why = "did not return" if effect.error is None else f"raised {effect.error.partition(':')[0]}"
        raise Stuck(
            f"the call of {effect.name} in step {effect.step} was made {_MOST_TIMES + 1} times and is still in doubt: "
            f"it {why} each time, so the drill cannot tell whether it happened. Let the function return, or let it "
            "raise holdfast.ToolNotDone if it did nothing, or list such errors in not_done= of the tool."
        )
    told[place] += isinstance(truth, NotDone)
    arguments = hashlib.sha256(msgpack.encode(effect.arguments)).hexdigest()
    log.write(Settled(effect.name, arguments, isinstance(truth, Happened)))
    with suppress(Conflict):  # the function has ended meanwhile, and its outcome was recorded
        hf.settle(question.thread, effect, truth, force=True)  # the drill knows the truth


def _ended(
    drill: Drill,
    hf: Holdfast,
    status: Status,
    places: list[str],
    seen_at_start: list[bytes],
    timed: list[str],
    faults: Injector,
) -> TrialOutcome:
    latest = hf.thread(THREAD).latest()
    result: Any = None
    if status == "completed":
        with hf.run(THREAD) as run:
            result = run.result
    effects = [effect for info in hf.threads() for effect in hf.effects(info.name)]
    return TrialOutcome(
        status=status,
        state=msgpack.encode(None if latest is None else latest.state),
        result=msgpack.encode(result),
        given_up=[effect.name for effect in effects if effect.status == "given_up"],
        places=places,
        timed=timed,
        faultable=faults.places,
        was_faulted=faults.was_injected,
        seen_at_start=seen_at_start,
        seen=look(drill.watch),
    )


def _failed(error: BaseException) -> TrialOutcome:
    """The outcome for an error: its place in the agent's code, and its text only if it is an error of Holdfast."""
    shown = traceback.TracebackException.from_exception(error)
    at = place_of(shown)
    if isinstance(error, HoldfastError):
        place = f" (in {at})" if at else ""
        is_usage = isinstance(error, InvalidArgument | Stuck | Unplayable)
        return TrialOutcome(
            failure=f"{'' if is_usage else f'{type(error).__name__}: '}{error}{place}", is_usage=is_usage
        )
    trace = "".join(shown.format()).rstrip()
    return TrialOutcome(failure=type(error).__name__ + (f" in {at}" if at else ""), trace=trace)


def place_of(shown: traceback.TracebackException) -> str:
    """The place of an error in the agent's code, if any. Frames of other code are removed from `shown`."""
    own = _own(shown)
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def _own(shown: traceback.TracebackException) -> list[traceback.FrameSummary]:
    for behind in (shown.__cause__, shown.__context__):
        if behind is not None:
            _own(behind)
    own = [frame for frame in shown.stack if not frame.filename.startswith(_NOT_OWN)]
    shown.stack = traceback.StackSummary.from_list(own)
    return own


_NOT_OWN = tuple(str(Path(module).resolve().parent) + os.sep for module in (holdfast.__file__, asyncio.__file__))
