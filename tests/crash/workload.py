"""The workload of the crash lab: every verb that writes, a few times, and a word after each that was done.

The script is fixed, so that what must be there follows from what was said. `tests.crash.judge` knows how.
"""

from __future__ import annotations

import os
import resource
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

import holdfast
from holdfast import Holdfast, Run
from holdfast.errors import (
    Conflict,
    HoldfastError,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    StoreError,
)
from holdfast.runs.flusher import flusher
from holdfast.runs.lease import Lease
from tests.codec.strategies import identical
from tests.crash.children import carry_out
from tests.crash.model import Line, Operation, state_of
from tests.crash.tracing import say, wait_for_tracer

Kind = Literal["sqlite", "directory"]
Scene = Literal["verbs"]
NAME = "lab"
MAIN = f"{NAME}/main"
TURNS = 2
MANY_FAILURES = 4  # unknown outcomes after which a worker gives up: the judge considers what each may have done


class Job(msgspec.Struct, frozen=True, tag=True):
    """A run of its own, from its beginning to its end."""

    counter: int

    @property
    def thread(self) -> str:
        return f"jobs/{self.counter}"


Verb = Operation | Job

# The counters jump where the prompt, a large value that is stored apart, is to be another one.
SCRIPT: tuple[Verb, ...] = (
    Operation("save", MAIN, 1),
    Operation("save", MAIN, 2),
    Operation("save", MAIN, 3),
    Job(4),
    Operation("fork", f"{NAME}/fork-0", 5, back=1),
    Operation("save", f"{NAME}/fork-0", 6),
    Operation("edited fork", f"{NAME}/fork-1", 7, back=2),
    Operation("rewind", MAIN, 8, back=2),
    Operation("save", MAIN, 9),
    Operation("save", MAIN, 61),
    Operation("prune", MAIN, 62, keep=2),
    Operation("drop", f"{NAME}/fork-0", 63),
    Operation("optimize", MAIN, 64),
    Operation("save", MAIN, 65),
    Operation("save", MAIN, 121),
    Operation("drop", f"{NAME}/fork-1", 122),
    Operation("prune", MAIN, 123, keep=1),
    Operation("optimize", MAIN, 124),
    Operation("save", MAIN, 125),
)


class Task(msgspec.Struct):
    """What a worker is told. `forgetful`: it says that it saved what it did not, to see that the judge notices."""

    store: str
    scene: Scene = "verbs"
    lease: float = 30.0
    unharmed: int = 0  # verbs before the faults begin
    limit: int | None = None  # bytes that a file may have
    forgetful: bool = False
    durability: Literal["full", "normal", "off"] = "full"


def script_of(scene: Scene) -> tuple[Verb, ...]:
    return {"verbs": SCRIPT}[scene]


# -- a run -------------------------------------------------------------------------------------------------------------


def tools_of(say: Callable[[str], None]) -> list[Callable[..., Any]]:
    """The tools of a job. They say so when they have acted, whatever becomes of the caller."""

    def note(job: int, turn: int, idempotency_key: str) -> dict[str, int]:
        say(f"acted {job} {turn} note")
        return {"noted": turn}

    def pay(job: int, turn: int) -> dict[str, int]:
        say(f"acted {job} {turn} pay")
        return {"paid": turn}

    return [holdfast.tool(effect="idempotent")(note), holdfast.tool(in_doubt="ask")(pay)]


def work_on(run: Run, job: int, say: Callable[[str], None]) -> None:
    """A loop of two turns, a model and two tools in each.

    A call is said to be made when its result is written: `pay` when it returns, the others before the next call.
    """

    def model(turn: int) -> dict[str, int]:
        say(f"acted {job} {turn} model")
        return {"thought": turn}

    for _ in run.steps():
        turn = len(run.state["said"]) // 3
        if turn == TURNS:
            run.finish("done")
            break
        for name in ("model", "note", "pay"):
            args = {"job": job, "turn": turn}
            run.state["said"].append(run.model(model, turn) if name == "model" else run.tool(name, args))
            for written in {"model": (), "note": ("model",), "pay": ("note", "pay")}[name]:
                say(f"called {job} {turn} {written}")


# -- a worker ----------------------------------------------------------------------------------------------------------


def work(path: Path, pipe: int) -> None:
    """Do what the script says, and say what was done, and what was raised that is no error of the store's."""
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    # The thread that renews leases is not traced: its writes would not fail, and a run that cannot record what it was
    # told would try for as long as the lease lasts.
    Lease._renew_until_done = lambda self: None  # type: ignore[method-assign]  # in this process, which ends with its work
    flusher.is_off = True  # its thread is not traced either
    if task.limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (task.limit, resource.RLIM_INFINITY))
    try:
        Worker(task, lambda text: say(pipe, text)).run(lambda: wait_for_tracer(pipe))
    except BaseException:  # noqa: BLE001 - the nursery would report it by a call that may be failing
        say(pipe, f"leaked {msgspec.json.encode(traceback.format_exc()).decode()}")
    finally:
        os._exit(0)


class Worker:
    """Works through a script, also after errors: on the same handle where that was not poisoned."""

    def __init__(self, task: Task, say: Callable[[str], None]) -> None:
        self._task = task
        self._say = say
        self._line = Line(NAME)
        self._unknown = 0
        self._has_failed = False
        self._hf: Holdfast | None = None

    def run(self, wait: Callable[[], None]) -> None:
        """Do the script, waiting for the tracer where the task says."""
        for number, verb in enumerate(script_of(self._task.scene)):
            if number == self._task.unharmed:
                wait()
            if self._hf is None and not self._open():
                break
            self._do(verb)
            if self._unknown >= MANY_FAILURES:
                break
        self._close()
        self._say("ended")

    def _open(self) -> bool:
        try:
            tools = tools_of(self._say)
            self._hf = holdfast.open(self._task.store, durability=self._task.durability, tools=tools)
        except StoreError as error:
            self._say(f"unopened {type(error).__name__}")
            return False
        self._say("opened")
        return True

    def _close(self) -> None:
        hf, self._hf = self._hf, None
        if hf is not None:
            try:
                hf.close()
            except StoreError as error:
                self._say(f"unclosed {type(error).__name__}")

    def _do(self, verb: Verb) -> None:
        assert self._hf is not None
        try:
            if isinstance(verb, Job):
                self._work(self._hf, verb)
            elif not self._task.forgetful or verb.counter == 1:
                carry_out(self._hf, self._line, verb)
        except OutcomeUnknown as error:
            self._note(verb, error)
            self._unknown += 1
            self._settle(verb, error)
        except StoreError as error:
            self._note(verb, error)
            self._unknown += not is_nothing_changed(error)
        except (NotFound, Conflict, LeaseLost) as error:
            # What is not there because it failed before cannot be dropped, or forked from. A run whose store fails for
            # longer than its lease has lost it.
            if not self._has_failed and not (isinstance(verb, Job) and isinstance(error, LeaseLost)):
                raise
            self._note(verb, error)
        else:
            self._say(f"done {verb.counter}")

    def _work(self, hf: Holdfast, job: Job) -> None:
        with hf.run(job.thread, start={"said": []}, lease=self._task.lease) as run:
            work_on(run, job.counter, self._say)

    def _note(self, verb: Verb, error: HoldfastError) -> None:
        self._has_failed = True
        self._say(f"failed {verb.counter} {type(error).__name__}")

    def _settle(self, verb: Verb, error: OutcomeUnknown) -> None:
        """A poisoned handle refuses everything; another one says what became of the checkpoint in question."""
        assert self._hf is not None
        thread = self._hf.thread(MAIN)
        calls: Mapping[str, Callable[[], Any]] = {"save": lambda: thread.save({}), "latest": thread.latest}
        for name, call in calls.items():
            try:
                call()
            except OutcomeUnknown:
                continue
            raise AssertionError(f"{name} went on after an unknown outcome of operation {verb.counter}")
        self._close()
        if not self._open() or isinstance(verb, Job) or error.checkpoint is None:
            return
        try:
            found = self._hf.thread(verb.thread).load(error.checkpoint.id)
        except NotFound:
            self._say(f"settled {verb.counter} gone")
        except StoreError as failure:
            self._say(f"unread {type(failure).__name__}")
        else:
            assert verb.kind == "fork" or identical(found.state, state_of(NAME, verb.counter)), "it is another state"
            self._say(f"settled {verb.counter} there")


def is_nothing_changed(error: StoreError) -> bool:
    """Whether the error promises that nothing was changed."""
    return type(error) in NOTHING_CHANGED


NOTHING_CHANGED = (holdfast.errors.StoreFull, holdfast.errors.ReadOnly, holdfast.errors.Busy)
