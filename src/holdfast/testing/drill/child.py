"""What a process of the drill does: the agent's work, from the start or from where another process died, to its end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import msgspec

import holdfast
from holdfast.codec import msgpack
from holdfast.errors import HoldfastError, InvalidArgument, Unsupported
from holdfast.handle import Holdfast
from holdfast.runs.drivers import is_async
from holdfast.runs.tools import Happened, NotDone
from holdfast.testing.drill.calling import Book, Stage, Unplayable, watch_calls
from holdfast.testing.drill.points import Countdown, counted
from holdfast.testing.drill.spec import Drill
from holdfast.testing.drill.watching import look
from holdfast.testing.drill.world import Settled, WorldLog
from holdfast.types import Question, Status
from holdfast.urls import open_store

THREAD = "drill"
_MOST_QUESTIONS = 100
_MOST_TIMES = 3  # that a run is told that one call did not happen
_MOST_RUNS = 1000
_MOMENT_SECONDS = 0.002


class Task(msgspec.Struct, frozen=True):
    """What a process is told."""

    folder: str
    at: int = 0  # the point to die at; 0 to live
    is_resumed: bool = False
    played_from: str | None = None  # the folder of the run whose calls are played back


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a process saw that came to the end of the run, or failed on the way."""

    status: Status = "running"
    state: bytes = b""
    result: bytes = b""
    given_up: list[str] = []
    places: list[str] = []
    seen_at_start: list[bytes] = []
    seen: list[bytes] = []
    failure: str | None = None
    is_usage: bool = False  # the failure is no fault of the agent's, but of what it or the drill was given
    trace: str = ""  # of the agent's own code; none for an error of ours, which says what to do


class Stuck(HoldfastError):
    """The run cannot be brought to an end by the drill, as it was given."""


def log_of(folder: Path) -> WorldLog:
    return WorldLog(folder / "world.jsonl")


def outcome_of(folder: Path) -> Outcome | None:
    """What the last process of a run left; None if it came to no end."""
    path = folder / "outcome"
    return msgspec.msgpack.decode(path.read_bytes(), type=Outcome) if path.exists() else None


def live(drill: Drill, task: Task) -> NoReturn:
    """Be a process of the drill. Never returns: what was forked must not go on as its parent."""
    try:
        outcome = _outcome(drill, task)
        (Path(task.folder) / "outcome").write_bytes(msgspec.msgpack.encode(outcome))
    finally:
        os._exit(0)


def _outcome(drill: Drill, task: Task) -> Outcome:
    folder = Path(task.folder)
    try:
        _enter(folder)
        if not task.is_resumed:
            if drill.setup is not None:
                drill.setup()
            seen_at_start = look(drill.watch)
        else:
            seen_at_start = []
        log = log_of(folder)
        countdown = Countdown(task.at, log)
        book = None if task.played_from is None else Book(log_of(Path(task.played_from)).calls())
        stage = Stage(log, countdown, drill.stand_ins(), live=drill.live, book=book)
        watch_calls(stage)
        # A kill leaves what was written, synced or not; that a power failure does too is not for this to find out.
        store = counted(open_store(folder / "agent.db", namespace="default", durability="off"), countdown)
        with Holdfast(store, tools=drill.declared()) as hf:
            status = _work(drill, hf, log)
            if stage.refused is not None:
                raise stage.refused
            return _ended(drill, hf, status, countdown.places, seen_at_start)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the drill has to hear of it
        return _failed(error)


def _enter(folder: Path) -> None:
    """Be in a folder of one's own, with nobody to talk to: what agents print would be in the way of the report."""
    here = str(Path.cwd())
    sys.path[:] = [os.path.join(here, entry) for entry in sys.path]
    work = folder / "work"
    work.mkdir(exist_ok=True)
    os.chdir(work)
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(output, number)
    # Where tests capture what is printed, these go elsewhere.
    sys.stdout = sys.stderr = os.fdopen(output, "w", buffering=1)


def _work(drill: Drill, hf: Holdfast, log: WorldLog) -> Status:
    """Run, and tell the run what it asks, until it has ended; how."""
    told: Counter[Any] = Counter()
    question: Question | None = None
    for _ in range(_MOST_QUESTIONS):
        status = asyncio.run(_run_async(drill, hf)) if is_async(drill.handler) else _run(drill, hf)
        if status not in ("waiting", "queued"):
            return status
        questions = list(hf.waiting())
        for question in questions:
            _tell(drill, hf, log, question, told)
        if not questions and status == "waiting":
            _sleep(drill, hf)
    last = "" if question is None else f", the last time {question.name!r}"
    raise Stuck(f"the run waited {_MOST_QUESTIONS} times and came to no end{last}; let the agent wait less often")


def _sleep(drill: Drill, hf: Holdfast) -> None:
    """Wait until a run that sleeps is due."""
    store = hf._session.store
    due = [row.wake_at for _, row in store.runs(statuses=("waiting",), after=(0, 0), limit=_MOST_RUNS) if row.wake_at]
    seconds = (min(due) - store.clock().now) / 1000 if due else drill.timeout + 1
    if seconds > drill.timeout:
        raise Stuck("the run sleeps for longer than the drill waits; let the agent sleep for less, or give timeout=")
    time.sleep(max(seconds, 0) + _MOMENT_SECONDS)


def _run(drill: Drill, hf: Holdfast) -> Status:
    with hf.run(THREAD, start=drill.start, policy=drill.policy) as run:
        if run.status == "running":
            result = drill.handler(run)
            if run.status == "running":
                _check_result(drill, result)
                run.finish(result)
    return run.status


async def _run_async(drill: Drill, hf: Holdfast) -> Status:
    async with hf.aio.run(THREAD, start=drill.start, policy=drill.policy) as run:
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
        raise Stuck(f"what {drill.name} returns cannot be the result of a run: {refused}") from None


def _tell(drill: Drill, hf: Holdfast, log: WorldLog, question: Question, told: Counter[Any]) -> None:
    """Answer as the drill was told to; about a call, say what the world log says. `told` counts calls not done."""
    if question.about == "wait":
        if question.name not in drill.answers:
            answers = json.dumps({question.name: "…"}, ensure_ascii=False)
            raise Stuck(
                f"the run waits for an answer to {question.name!r}; give one: answers={{{question.name!r}: …}}, or on "
                f"the command line --answers '{answers}'"
            )
        hf.answer(question.thread, question.name, drill.answers[question.name])
        return
    effect = next(each for each in hf.effects(question.thread) if each.number == question.effect)
    thread = hf._session.store.thread(question.thread)
    truth = log.truth(0 if thread is None else thread.position.thread, effect.step, effect.key)
    place = (question.thread, effect.step, effect.key)
    if told[place] == _MOST_TIMES:
        why = "did not come back" if effect.error is None else f"raised {effect.error.partition(':')[0]}"
        raise Stuck(
            f"the call of {effect.name} in step {effect.step} is in doubt, and was made {_MOST_TIMES + 1} times: each "
            f"time it {why}, which does not say whether it happened. Let what is called in the drill return, or "
            "raise holdfast.ToolNotDone where nothing was done; or declare such errors with not_done= of the tool"
        )
    told[place] += isinstance(truth, NotDone)
    arguments = hashlib.sha256(msgpack.encode(effect.arguments)).hexdigest()
    log.write(Settled(effect.name, arguments, isinstance(truth, Happened)))
    hf.settle(question.thread, effect, truth)


def _ended(drill: Drill, hf: Holdfast, status: Status, places: list[str], seen_at_start: list[bytes]) -> Outcome:
    latest = hf.thread(THREAD).latest()
    result: Any = None
    if status == "completed":
        with hf.run(THREAD) as run:
            result = run.result
    effects = [effect for info in hf.threads() for effect in hf.effects(info.name)]
    return Outcome(
        status=status,
        state=msgpack.encode(None if latest is None else latest.state),
        result=msgpack.encode(result),
        given_up=[effect.name for effect in effects if effect.status == "given_up"],
        places=places,
        seen_at_start=seen_at_start,
        seen=look(drill.watch),
    )


def _failed(error: BaseException) -> Outcome:
    """What is reported of an error: where it is from in the agent's code, and its text only if it is ours."""
    shown = traceback.TracebackException.from_exception(error)
    at = place_of(shown)
    if isinstance(error, HoldfastError):
        place = f" (in {at})" if at else ""
        is_usage = isinstance(error, InvalidArgument | Stuck | Unplayable)
        return Outcome(failure=f"{'' if is_usage else f'{type(error).__name__}: '}{error}{place}", is_usage=is_usage)
    trace = "".join(shown.format()).rstrip()
    return Outcome(failure=type(error).__name__ + (f" in {at}" if at else ""), trace=trace)


def place_of(shown: traceback.TracebackException) -> str:
    """Where in the agent's code an error was made, if there; all other code is taken out of what is shown."""
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
