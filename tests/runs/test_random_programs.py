"""Random programs of saves, steps, tools and models, killed and interrupted: each call is made once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import AfterModel, AfterToolCall, EveryN, Happened, Holdfast, Never, NotDone, Policy
from holdfast.errors import Closed
from holdfast.runs.flusher import flusher
from holdfast.signals import shield
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Owner
from holdfast.stores.sqlite.memory import MemoryStore
from tests.runs.conftest import Crash, World

SECONDS = 120.0 if os.environ.get("HOLDFAST_LAB") == "full" else 3.0
FAULTS_MIN = 40 if os.environ.get("HOLDFAST_LAB") == "full" else 4
OPERATIONS = ("tool", "keyed", "save", "model", "set")
POLICIES: tuple[Policy, ...] = (AfterToolCall(), AfterModel(), EveryN(1), EveryN(2), Never())
LIVES_MAX = 30

Program = list[tuple[tuple[str, ...], int]]  # parts: operations, and how often; 0 is once, outside of steps


class Faulty:
    """A store whose process is killed or interrupted at one of its writes. A dead process writes nothing more."""

    def __init__(self, store: Store, how: str, at: int) -> None:
        self._store = store
        self._how = how
        self._left = at
        self.is_dead = False
        self.struck = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found
        return lambda *args, **options: self._call(name, found, args, options)

    def _call(self, name: str, found: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.is_dead and name != "close":
            if threading.current_thread().name == "holdfast-lease":
                raise Closed("dead")
            raise Crash
        if name not in ("commit", "journal", "claim"):
            return found(*args, **options)
        self._left -= 1
        if self._left:
            return found(*args, **options)
        self.struck = True
        if self._how == "interrupt":
            with shield:
                answer = found(*args, **options)
                signal.raise_signal(signal.SIGINT)
            return answer
        if self._how == "kill after":
            found(*args, **options)
        self.is_dead = True
        raise Crash


class Scene:
    """One program with its effects, in one thread after the other."""

    def __init__(self, world: World, program: Program, policy: Policy) -> None:
        self.world = world
        self.acted: Counter[str] = Counter()
        self.result: Any = None
        self._program = program
        self._policy = policy
        self.act = holdfast.tool(effect="irreversible", name="act")(self._act)

    def _act(self, what: str) -> str:
        self.acted[what] += 1
        return f"did {what}"

    def _reply(self, what: str) -> str:
        return f"reply to {what}"

    def _call(self, run: Any, operation: str, what: str, *, is_outside: bool) -> Any:
        """The call of an operation, to be awaited in an async run; None if it is none."""
        if operation in ("tool", "keyed"):
            return run.tool(self.act, {"what": what}, key=what if operation == "keyed" else None)
        if operation == "model":
            return run.model(self._reply, what, key=what if is_outside else None)
        if operation == "save":
            return run.save()
        run.state[what] = "set"
        return None

    def run_sync(self, hf: Holdfast) -> str:
        with hf.run("t", start={"log": []}, policy=self._policy, lease=3.0) as run:
            outside: list[Any] = []
            for number, (operations, rounds) in enumerate(self._program if run.status == "running" else ()):
                if not rounds:
                    for at, operation in enumerate(operations):
                        answer = self._call(run, operation, f"{number}.{at}", is_outside=True)
                        outside += [answer] if isinstance(answer, str) else []
                    continue
                for _ in run.steps():
                    done = run.state.get(f"done {number}", 0)
                    if done == rounds:
                        break
                    for at, operation in enumerate(operations):
                        answer = self._call(run, operation, f"{number}.{at}.{done}", is_outside=False)
                        run.state["log"] += [answer] if isinstance(answer, str) else []
                    run.state[f"done {number}"] = done + 1
            if run.status == "running":
                run.finish([outside, run.state])
        self.result = run.result
        return run.status

    async def _run_async(self, hf: Holdfast) -> str:
        async with hf.aio.run("t", start={"log": []}, policy=self._policy, lease=3.0) as run:
            outside: list[Any] = []
            for number, (operations, rounds) in enumerate(self._program if run.status == "running" else ()):
                if not rounds:
                    for at, operation in enumerate(operations):
                        call = self._call(run, operation, f"{number}.{at}", is_outside=True)
                        answer = None if call is None else await call
                        outside += [answer] if isinstance(answer, str) else []
                    continue
                async for _ in run.steps():
                    done = run.state.get(f"done {number}", 0)
                    if done == rounds:
                        break
                    for at, operation in enumerate(operations):
                        call = self._call(run, operation, f"{number}.{at}.{done}", is_outside=False)
                        answer = None if call is None else await call
                        run.state["log"] += [answer] if isinstance(answer, str) else []
                    run.state[f"done {number}"] = done + 1
            if run.status == "running":
                await run.finish([outside, run.state])
        self.result = run.result
        return run.status

    def run_async(self, hf: Holdfast) -> str:
        return asyncio.run(self._run_async(hf))

    def live(self, how: str, at: int, run: Callable[[Holdfast], str]) -> tuple[str, bool]:
        """One process. Returns the status in which it left the run, and whether it was killed or interrupted."""
        faulty: list[Faulty] = []

        def between(store: Store) -> Any:
            faulty.append(Faulty(store, how, at))
            return faulty[0]

        hf = self.world.open(store=between)
        try:
            status = run(hf)
        except (Crash, KeyboardInterrupt):
            status = "killed"
        if faulty[0].is_dead:
            for number in range(self.world._owners):
                self.world._dead.add(Owner("here", "boot", 1, 1, number + 1))
            self.world.pass_time(100)
        return status, faulty[0].struck

    def settle(self) -> None:
        """Answer the questions about calls in doubt truthfully. Nothing else may be asked."""
        hf = self.world.open()
        for question in hf.waiting():
            assert question.about == "in doubt", (question, hf.run_info("t"))
            [effect] = [effect for effect in hf.effects("t") if effect.number == question.effect]
            what = effect.arguments["what"]
            hf.settle("t", effect.number, Happened(f"did {what}") if self.acted[what] else NotDone(), force=True)


def random_program(random: random.Random) -> Program:
    parts = []
    for _ in range(random.randrange(1, 4)):
        operations = tuple(random.choice(OPERATIONS) for _ in range(random.randrange(1, 5)))
        parts.append((operations, random.choice((0, 0, 1, 2, 3))))
    return parts


def check(world: World, random: random.Random, modes: tuple[str, ...], *, is_async: bool) -> Counter[str]:
    """Run one random program to its end through faults, and compare it with an uninterrupted run. Counts the faults."""
    program, policy = random_program(random), random.choice(POLICIES)
    calm, scene = Scene(world, program, policy), Scene(world, program, policy)
    run = scene.run_async if is_async else scene.run_sync
    assert calm.live("none", 0, calm.run_sync) == ("completed", False)
    world.open().thread("t").drop()
    struck: Counter[str] = Counter()
    lives = []
    for life in range(LIVES_MAX):
        how, at = random.choice(modes), random.randrange(1, 14) if life < 4 else 0
        status, is_struck = scene.live(how, at, run)
        struck[how] += is_struck
        lives.append((how, at, status))
        if status == "completed":
            break
        try:
            scene.settle()
        except AssertionError as error:
            error.add_note(f"{program}, {policy}, {lives}")
            raise
    assert (scene.acted, scene.result) == (calm.acted, calm.result), (program, policy, lives)
    last = world.open()
    last.thread("t").drop()
    if not isinstance(last.context.store, MemoryStore):  # its handles share one store
        world.close()  # a database accepts few connections
        world._opened.clear()
    return struck


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_each_call_of_a_random_program_is_made_once(
    world: World, is_async: bool, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "is_off", True)  # a process dies in the thread that writes
    # In an async run, asyncio turns Ctrl-C into a cancellation: tests/aio has those.
    modes = ("kill", "kill after") if is_async else ("kill", "kill after", "interrupt")
    # The same programs every time in `make test`, other ones in the crash lab.
    is_full = os.environ.get("HOLDFAST_LAB") == "full"
    seed = int(os.environ.get("HOLDFAST_SEED", "0")) or (random.randrange(2**32) if is_full else 17)
    source = random.Random(seed)
    struck: Counter[str] = Counter()
    until = time.monotonic() + SECONDS
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    programs = 0
    try:
        while time.monotonic() < until or min(struck[mode] for mode in modes) < FAULTS_MIN:
            struck += check(world, source, modes, is_async=is_async)
            programs += 1
    except BaseException as error:
        error.add_note(f"HOLDFAST_SEED={seed}, program {programs}")
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
    record_property("programs", programs)
    record_property("faults", dict(struck))
