"""A state machine of workers that claim, act, crash, are stopped and come back late, against a small model.

The model is what the world and the caller can see: how often each call was executed, what it returned, and what was
settled. It knows nothing of rows or fences.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import holdfast
from holdfast import Conflict, GiveUp, Happened, Holdfast, HoldfastError, LeaseHeld, NotDone, Run
from holdfast.policy import EveryN
from holdfast.runs.block_end import Waiting
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock
from holdfast.stores.log import DirectoryStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.threads.scan import thread_named
from tests.selection import on_store, tries
from tests.stores.model import ModelStore
from tests.stores.postgres.server import address_at

LEASE = 30.0
TOOLS = ("look", "pay", "post", "mail", "wire")
# What may fail before the agent acts, and with what it then acts instead.
ATTEMPTS = ("model", "read", "tool")
KEYS = ("a", "b")

keys = st.sampled_from(KEYS)
tools = st.sampled_from(TOOLS)
attempts = st.sampled_from(ATTEMPTS)


class Died(BaseException):
    """The process dies inside a tool, when the effect has happened."""


class Refused(Exception):
    """Nothing happened, and the agent is told so."""


class Call(msgspec.Struct):
    """What the model knows of one call, by branch, step, tool and key."""

    executed: int = 0
    returned: list[Any] = []
    doubtful: bool = False
    allowed: int = 1  # times it may be executed: more once somebody said that it did not happen
    failed_before: Run | None = None  # which worker saw it fail last


class Detour(msgspec.Struct):
    """What the model knows of an attempt that fails the first time, and of the two ways to go on from there."""

    way: Call  # either way: both together happen once
    tried: int = 0
    gone_by: list[Run] = []  # a worker goes here once: to try again would be another choice of the agent's


class Worker(msgspec.Struct):
    """A process that holds the run, or held it."""

    run: Run
    loop: AbstractContextManager[None]  # ends when nothing refers to it


class RunMachine(RuleBasedStateMachine):
    """One thread; at most one worker that holds its run, and those who held it once."""

    open_store: Callable[[Path, Callable[[], Clock]], Store]

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._now = 1000
        self._hf = Holdfast(type(self).open_store(Path(self._folder.name) / "agent.db", self._clock))
        self._holder: Worker | None = None
        self._stale: list[Worker] = []
        self._calls: dict[tuple[int, int, str, str], Call] = {}
        self._wire = Call(returned=[])  # one act, whichever step, branch or key asks for it
        self._detours: dict[tuple[int, int, str, str], Detour] = {}
        self._count = 0
        self._rewinds = 0
        self._saved = 0  # what the newest checkpoint holds
        self._until = 0
        self._die = False
        self._fail = False

    def teardown(self) -> None:
        for worker in (*self._stale, *([self._holder] if self._holder else ())):
            if worker.run.core._lease is not None:
                worker.run.core._lease.stop()
        self._hf.close()
        self._folder.cleanup()

    def _clock(self) -> Clock:
        return Clock("boot", self._now)

    # -- the world ----------------------------------------------------------------------------------------------------

    def _execute(self, call: Call) -> int:
        call.executed += 1
        self._count += 1
        if self._die:
            raise Died
        if self._fail:
            raise ConnectionError
        return self._count

    def _tool(self, name: str, call: Call) -> Callable[..., Any]:
        def act(branch: int, key: str) -> int:
            return self._execute(call)

        declarations: dict[str, dict[str, Any]] = {
            "look": {"effect": "read"},
            "pay": {"effect": "idempotent"},
            "post": {},
            "mail": {"in_doubt": "give_up"},
            "wire": {"identity": lambda **_: "the rent"},
        }
        return holdfast.tool(name=name, **declarations[name])(act)

    def _arguments(self, key: str) -> dict[str, Any]:
        """Others on each branch: the same call would be answered with what was done on an abandoned one.

        Others for each key: the same call with another key could be a call whose key has changed.
        """
        return {"branch": self._rewinds, "key": key}

    # -- rules --------------------------------------------------------------------------------------------------------

    @rule()
    def claim(self) -> None:
        held = self._holder is not None and self._now < self._until
        block = self._hf.run("t", start={"n": 0}, lease=LEASE, policy=EveryN(1), effects="live")
        try:
            run = block.__enter__()
        except LeaseHeld:
            assert held
            return
        assert not held
        assert run.core._lease is not None
        run.core._lease.stop()  # the machine renews
        loop = run.core.in_steps()  # as `run.steps()` does: calls outside a loop are answered in every step
        loop.__enter__()
        if self._holder is not None:
            self._stale.append(self._holder)
        self._holder = Worker(run, loop)
        self._until = self._now + int(LEASE * 1000)
        assert run.state == {"n": self._saved}

    @rule(seconds=st.sampled_from([1, 10, 31]))
    def pass_time(self, seconds: int) -> None:
        self._now += seconds * 1000

    @precondition(lambda self: self._holder is not None)
    @rule()
    def renew(self) -> None:
        assert self._holder is not None
        assert self._holder.run.core._lease is not None
        self._holder.run.core._lease._renew()
        self._until = self._now + int(LEASE * 1000)

    @precondition(lambda self: self._holder is not None)
    @rule(name=tools, key=keys, die=st.booleans(), fail=st.booleans())
    def act(self, name: str, key: str, die: bool, fail: bool) -> None:
        assert self._holder is not None
        run = self._holder.run
        place = (self._rewinds, run.step, name, f"{name} {key}")
        call = self._calls.setdefault(place, self._wire if name == "wire" else Call(returned=[]))
        before = call.executed
        self._die, self._fail = die, fail and not die
        try:
            result = run.tool(self._tool(name, call), self._arguments(key), key=f"{name} {key}")
        except Waiting as suspended:
            call.doubtful = True
            self._suspend(name, suspended)
        except Died:
            assert call.executed == before + 1
            call.doubtful = name != "look"
            self._crash()
        except ConnectionError:
            assert name in ("look", "pay")
            # Raised again for a worker that replays what another went on from, else by the call.
            assert call.executed == before + 1 or call.failed_before not in (None, run)
            call.failed_before = run
        else:
            if name == "wire":
                is_given_up = isinstance(result, dict)
                assert call.executed == before + 1 or result in call.returned or is_given_up, "it is of another act"
            elif call.returned and name != "look":
                assert call.executed == before, "a recorded result was executed again"
                assert result == call.returned[-1]
            assert call.executed, "the result is that of another branch or step"
            call.doubtful = False
            call.returned.append(result)
        finally:
            self._die = self._fail = False

    @precondition(lambda self: self._holder is not None)
    @rule(attempt=attempts, key=keys, die=st.booleans())
    def catch(self, attempt: str, key: str, die: bool) -> None:
        """A model, a read or a tool raises the first time it is called; the agent catches that and acts otherwise."""
        assert self._holder is not None
        run = self._holder.run
        place = (self._rewinds, run.step, attempt, key)
        detour = self._detours.setdefault(place, Detour(way=Call(returned=[]), gone_by=[]))
        if run in detour.gone_by:
            return
        detour.gone_by.append(run)
        for way in ("planned", "instead"):
            self._calls[self._rewinds, run.step, way, f"{attempt} {key}"] = detour.way
        before = detour.way.executed
        self._die = die
        try:
            result = self._go(run, attempt, key, detour)
        except Waiting as suspended:
            detour.way.doubtful = True
            self._suspend("post", suspended)
        except Died:
            assert detour.way.executed == before + 1
            detour.way.doubtful = True
            self._crash()
        else:
            if detour.way.returned:
                assert detour.way.executed == before, "the agent went another way than before, or twice"
                assert result == detour.way.returned[-1]
            detour.way.doubtful = False
            detour.way.returned.append(result)
        finally:
            self._die = False

    def _go(self, run: Run, attempt: str, key: str, detour: Detour) -> Any:
        """The agent's program: one way if the attempt succeeds, another if it fails."""

        def fail_first() -> None:
            detour.tried += 1
            if detour.tried == 1:
                raise Refused

        def act(branch: int, key: str) -> int:
            return self._execute(detour.way)

        def try_to_act(branch: int, key: str) -> int:
            fail_first()
            return act(branch, key)

        at = f"{attempt} {key}"
        try:
            if attempt == "tool":
                return run.tool(
                    holdfast.tool(name="planned", not_done=(Refused,))(try_to_act), self._arguments(at), key=at
                )
            if attempt == "model":
                run.model(fail_first, key=at)
            else:
                run.tool(holdfast.tool(name="read", effect="read")(fail_first), {}, key=at)
        except Refused:
            return run.tool(holdfast.tool(name="instead")(act), self._arguments(at), key=at)
        return run.tool(holdfast.tool(name="planned")(act), self._arguments(at), key=at)

    def _suspend(self, name: str, suspended: Waiting) -> None:
        assert name in ("post", "wire")
        assert self._holder is not None
        assert self._holder.run.core.leave(suspended)
        assert self._holder.run.status == "waiting"
        self._stale.append(self._holder)
        self._holder = None

    @precondition(lambda self: self._holder is not None)
    @rule()
    def save(self) -> None:
        assert self._holder is not None
        run = self._holder.run
        if any(call.doubtful for place, call in self._calls.items() if place[:2] == (self._rewinds, run.step)):
            return  # an honest program looks at what it called before it closes the step
        run.state["n"] = self._saved + 1
        try:
            run.core.prepare_step_end()()  # as `run.steps()` does; a save alone is not where a run resumes
        except Waiting as suspended:
            # An earlier worker acted in this step, and this one has not asked for all of it again.
            self._suspend("post", suspended)
            [question] = self._hf.waiting()
            for number in re.findall(r"\d+", question.name):
                assert self._hf.effects("t")[int(number) - 1].effect in ("idempotent", "irreversible")
            self._hf.answer("t", question.name, value=True)
            return
        self._saved += 1
        # A checkpoint may renew the lease, and never shortens it.
        thread = thread_named(self._hf.context.store, "t")
        assert thread is not None
        row = self._hf.context.store.run(thread.position.thread)
        assert row is not None
        assert row.lease_until in (self._until, self._now + int(LEASE * 1000))
        self._until = row.lease_until

    @precondition(lambda self: self._holder is not None)
    @rule()
    def crash(self) -> None:
        self._crash()

    def _crash(self) -> None:
        assert self._holder is not None
        self._stale.append(self._holder)
        self._holder = None
        self._now = max(self._now, self._until)  # its lease runs out

    @precondition(lambda self: self._holder is not None)
    @rule(error=st.sampled_from([None, ValueError(), KeyboardInterrupt()]))
    def leave(self, error: BaseException | None) -> None:
        assert self._holder is not None
        self._holder.run.core.leave(error)
        self._stale.append(self._holder)
        self._holder = None

    @precondition(lambda self: self._holder is not None and bool(self._stale))
    @rule(data=st.data(), key=keys)
    def act_late(self, data: st.DataObject, key: str) -> None:
        """Whoever lost the run tries to go on: nothing of it may happen."""
        run = data.draw(st.sampled_from(self._stale)).run
        call = Call(returned=[])
        verbs: list[Callable[[], Any]] = [
            run.save,
            lambda: run.finish("late"),
            lambda: run.halt("late"),
            lambda: run.tool(self._tool("post", call), self._arguments(key), key=f"late {key}"),
        ]
        with pytest.raises((HoldfastError, Waiting)):  # LeaseLost, or its block has ended, or a call is in doubt
            data.draw(st.sampled_from(verbs))()
        assert call.executed == 0

    @precondition(lambda self: self._holder is None)
    @rule(outcome=st.sampled_from([Happened("settled"), NotDone(), GiveUp()]))
    def settle(self, outcome: Any) -> None:
        if not self._calls:
            return
        for effect in self._hf.effects("t"):
            place = (effect.branch, effect.step, effect.name, effect.key.partition("/")[2])
            if place not in self._calls:
                continue
            call = self._calls[place]
            if effect.status in ("started", "in_doubt"):
                # Its process is dead only in this machine's world.
                self._hf.settle("t", effect, outcome, force=not isinstance(outcome, Happened))
                call.doubtful = False
                if isinstance(outcome, NotDone):
                    call.allowed = call.executed + 1
                elif isinstance(outcome, Happened):
                    call.returned.append("settled")
                elif call is self._wire:
                    call.allowed = call.executed + 1  # an act that was given up is free
                return
            with pytest.raises(Conflict):
                self._hf.settle("t", effect, Happened("something else"))

    @precondition(lambda self: self._holder is None)
    @rule()
    def release(self) -> None:
        """A person lets the act happen again."""
        for act in self._hf.acts("wire"):
            # Its process is dead only in this machine's world.
            self._hf.release(act, by="anna", reason="the bank returned it", force=True)
            self._wire.allowed = self._wire.executed + 1
            assert [each.status in ("released", "not_done", "given_up") for each in self._hf.acts("wire")] == [True]

    @precondition(lambda self: self._holder is None and self._saved > 0)
    @rule()
    def rewind(self) -> None:
        """A branch begins: nothing that was recorded counts in it."""
        thread = self._hf.thread("t")
        thread.rewind("@0", past_effects=True)
        self._rewinds += 1
        self._saved = 0

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def irreversible_effects_happen_at_most_once(self) -> None:
        for (_, _, name, _), call in self._calls.items():
            if name in ("post", "mail", "planned", "instead", "wire"):
                assert call.executed <= call.allowed

    @invariant()
    def the_newest_checkpoint_is_the_one_that_was_acknowledged(self) -> None:
        latest = self._hf.thread("t").latest()
        assert latest is None or latest.state == {"n": self._saved}

    @invariant()
    def no_stale_worker_wrote_anything(self) -> None:
        if self._hf.thread("t").head() is not None:
            assert not any(effect.key.startswith("post/late") for effect in self._hf.effects("t"))


def _open_memory(path: Path, clock: Callable[[], Clock]) -> Store:
    return ModelStore(namespace="default", clock=clock)


def _open_sqlite(path: Path, clock: Callable[[], Clock]) -> Store:
    return SQLiteStore(path, namespace="default", durability="off", clock=clock)


def _open_postgres(path: Path, clock: Callable[[], Clock]) -> Store:
    return PostgresStore(address_at(path), namespace="default", clock=clock)


class MemoryMachine(RunMachine):
    open_store = staticmethod(_open_memory)


def _open_directory(path: Path, clock: Callable[[], Clock]) -> Store:
    return DirectoryStore(path, namespace="default", durability="off", clock=clock)


class SQLiteMachine(RunMachine):
    open_store = staticmethod(_open_sqlite)


class PostgresMachine(RunMachine):
    open_store = staticmethod(_open_postgres)


class DirectoryMachine(RunMachine):
    open_store = staticmethod(_open_directory)


_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much]
TestMemoryRuns = on_store("memory")(MemoryMachine.TestCase)
TestMemoryRuns.settings = settings(
    max_examples=tries(300, 80), stateful_step_count=30, deadline=None, suppress_health_check=_QUIET
)
TestSQLiteRuns = on_store("sqlite")(SQLiteMachine.TestCase)
TestSQLiteRuns.settings = settings(
    max_examples=tries(120, 40), stateful_step_count=30, deadline=None, suppress_health_check=_QUIET
)
TestPostgresRuns = on_store("postgres")(PostgresMachine.TestCase)
TestPostgresRuns.settings = settings(
    max_examples=tries(20, 8), stateful_step_count=25, deadline=None, suppress_health_check=_QUIET
)
TestDirectoryRuns = on_store("directory")(DirectoryMachine.TestCase)
TestDirectoryRuns.settings = TestSQLiteRuns.settings
