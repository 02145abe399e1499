"""What the children of the run tests do until they are stopped, killed, or done."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import holdfast
from holdfast import Holdfast, Run
from holdfast.runs import work_queue, worker
from holdfast.runs.flusher import flusher
from holdfast.stores.contract import Store
from holdfast.stores.sqlite import SQLiteStore
from tests.runs.sweep_faults import WRITING_VERBS, Countdown, hook_disk
from tests.waiting import until

STEPS = 3
Around = Callable[[str, int], AbstractContextManager[None]]


def say(pipe: int, *words: object) -> None:
    os.write(pipe, (" ".join(map(str, words)) + "\n").encode())


def wait_until(there: Path) -> None:
    until(there.exists, f"{there.name} is there")


def note(book: Path, line: str) -> None:
    """Something happens outside of the store, once for each line."""
    with book.open("a") as file:
        file.write(f"{line}\n")


class Watched:
    """A store with something around each call of a verb: `around` is given the verb, and how often it was called."""

    def __init__(self, store: Store, around: Around) -> None:
        self._store = store
        self._around = around
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in (*WRITING_VERBS, "runs"):
            return found

        def run(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._counts[name] += 1
                count = self._counts[name]
            with self._around(name, count):
                return found(*args, **kwargs)

        return run


def watched(told: dict[str, Any], around: Around) -> Holdfast:
    """A handle on a watched store, and workers that look again at once."""
    work_queue._IDLE_SECONDS = 0.03
    worker._BACKOFF_SECONDS = (0.05, 0.05, 0.05, 0.05)
    store = SQLiteStore(
        told["store"],
        namespace="default",
        durability=told.get("durability", "off"),
        busy_timeout=told.get("patience", 10.0),
    )
    return Holdfast(cast(Store, Watched(store, around)))


def _told(task: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(task.read_text())
    return told


def ask() -> str:
    return "paid for"


def hold(task: Path, pipe: int) -> None:
    """Begin an effect and stay inside it until killed."""
    told = _told(task)

    @holdfast.tool(name="act")
    def act() -> None:
        say(pipe, "acting")
        threading.Event().wait()

    hf = holdfast.open(told["store"], durability="off")
    with hf.run("t", start={"n": 0}, lease=told["lease"]) as run:
        run.model(ask)
        run.tool(act, {}, key="k")


def race(task: Path, pipe: int) -> None:
    """Claim as soon as all are there; whoever wins keeps the run until told to leave."""
    told = _told(task)
    hf = holdfast.open(told["store"], durability="off")
    say(pipe, "ready")
    wait_until(Path(told["go"]))
    try:
        with hf.run("t", start={"n": 0}):
            say(pipe, "won")
            wait_until(Path(told["leave"]))
    except holdfast.LeaseHeld:
        say(pipe, "LeaseHeld")


def zombie(task: Path, pipe: int) -> None:
    """Act once inside which the process is stopped; then try to act again."""
    told = _told(task)
    ledger = Path(told["ledger"])

    @holdfast.tool(name="act")
    def act(what: str) -> str:
        with ledger.open("a") as file:
            file.write(f"{what}\n")
        if what == "first":
            say(pipe, "acting")
            wait_until(Path(told["go"]))
        return f"{what} done"

    hf = holdfast.open(told["store"], durability="off")
    try:
        with hf.run("t", start={"n": 0}, lease=told["lease"]) as run:
            for what in ("first", "second"):
                try:
                    say(pipe, run.tool(act, {"what": what}, key=what))
                except holdfast.LeaseLost:
                    say(pipe, what, "LeaseLost")
            run.finish("zombie")
    except holdfast.LeaseLost:
        say(pipe, "block LeaseLost")


def work(task: Path, pipe: int) -> None:
    """A worker until SIGTERM. Its handler tells of its steps."""
    told = _told(task)
    hf = holdfast.open(told["store"], durability="off")

    def handler(run: Run) -> str:
        for step in run.steps():
            run.tool(dict, {})
            run.state["n"] = step
            say(pipe, "step", step)
            time.sleep(0.01)
        return "unreachable"

    hf.worker({"h": handler}).run()
    say(pipe, "drained")


def serve(task: Path, pipe: int) -> None:
    """A program as each of its processes runs it: recover, then work until SIGTERM. Tells of each look and claim."""
    told = _told(task)

    def act(what: str) -> str:
        note(Path(told["effects"]), f"{told['name']} {what}")
        say(pipe, "acting", what)
        wait_until(Path(told["go"]) / what)
        return f"{what} by {told['name']}"

    def job(run: Run) -> list[str]:
        for step in run.steps():
            run.state["done"].append(run.tool(act, {"what": f"step-{step}"}, key="call_0"))
            if step == STEPS:
                break
        return list(run.state["done"])

    @contextmanager
    def around(verb: str, count: int) -> Generator[None]:
        if verb == "runs":
            say(pipe, "looked", time.monotonic())
        yield
        if verb == "claim":
            say(pipe, "claimed")

    hf = watched(told, around)
    say(pipe, "interrupted:", *(found.thread for found in hf.interrupted()))
    if told["resume"]:
        try:
            with hf.run("t", lease=told["lease"]) as run:
                run.finish(job(run))
        except holdfast.LeaseHeld:
            say(pipe, "LeaseHeld")
    hf.worker({"job": job}, concurrency=told["concurrency"], lease=told["lease"]).run()
    say(pipe, "drained")


def persist(task: Path, pipe: int) -> None:
    """A worker until SIGTERM whose store gets into trouble at one call of one verb. Tells of each look,
    and of each call that fails.

    Before that call it waits to be told to go on; or it makes the disk fail for the time of that call.
    """
    told = _told(task)
    flusher.is_off = True  # the calls of verbs are counted
    effects, failed = Path(told["effects"]), Path(told["failed"])
    disk = Countdown(0, pipe)
    if told.get("fault") == "sync":
        hook_disk(disk)

    @contextmanager
    def around(verb: str, count: int) -> Generator[None]:
        if verb == "runs":
            say(pipe, "looks")
        here = (verb, count) == (told.get("verb"), told.get("count"))
        if here and "go" in told:
            say(pipe, "at", verb)
            wait_until(Path(told["go"]))
        try:
            with failing(disk, told["fault"] if here and "fault" in told else None):
                yield
        except holdfast.StoreError as error:
            say(pipe, type(error).__name__, verb)
            raise

    def act(step: int) -> None:
        note(effects, f"act {step}")

    def handler(run: Run) -> str:
        for step in run.steps():
            run.model(note, effects, f"model {step}")
            run.tool(act, {"step": step}, key="call_0")
            if step == 2:
                break
        if told.get("fails") and not failed.exists():
            failed.touch()
            raise ValueError
        return "done"

    hf = watched(told, around)
    hf.worker({"h": handler}, lease=told["lease"]).run()
    say(pipe, "drained")


@contextmanager
def failing(disk: Countdown, fault: str | None) -> Generator[None]:
    """Let no sync, or no write, succeed meanwhile."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    disk.failing = fault == "sync"
    if fault == "write":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        disk.failing = False
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
