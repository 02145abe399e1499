"""A state machine of workers that claim, act, crash, are stopped and come back late, against a small model.

The model is what the world and the caller can see: how often each call was executed, what it returned, and what was
settled. It knows nothing of rows or fences.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import holdfast
from holdfast import Conflict, GiveUp, Happened, Holdfast, HoldfastError, LeaseHeld, NotDone, Run
from holdfast.runs.calls import Parked
from holdfast.stores.contract import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.running import Clock
from holdfast.stores.sqlite import SQLiteStore

LEASE = 30.0
TOOLS = ("look", "pay", "post", "mail")
KEYS = ("a", "b")

keys = st.sampled_from(KEYS)
tools = st.sampled_from(TOOLS)


class Died(BaseException):
    """The process dies inside a tool, when the effect has happened."""


class Call(msgspec.Struct):
    """What the model knows of one call, by branch, step, tool and key."""

    executed: int = 0
    returned: list[Any] = []
    doubtful: bool = False
    allowed: int = 1  # times it may be executed: more once somebody said that it did not happen


class Worker(msgspec.Struct):
    """A process that holds the run, or held it."""

    run: Run


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
        self._count = 0
        self._rewinds = 0
        self._saved = 0  # what the newest checkpoint holds
        self._until = 0
        self._die = False
        self._fail = False

    def teardown(self) -> None:
        for worker in (*self._stale, *([self._holder] if self._holder else ())):
            if worker.run._lease is not None:
                worker.run._lease.stop()
        self._hf.close()
        self._folder.cleanup()

    def _clock(self) -> Clock:
        return Clock("boot", self._now)

    # -- the world ----------------------------------------------------------------------------------------------------

    def _tool(self, name: str, call: Call) -> Callable[..., Any]:
        def act() -> int:
            call.executed += 1
            self._count += 1
            if self._die:
                raise Died
            if self._fail:
                raise ConnectionError
            return self._count

        declarations: dict[str, dict[str, Any]] = {
            "look": {"effect": "read"},
            "pay": {"effect": "idempotent"},
            "post": {},
            "mail": {"in_doubt": "give_up"},
        }
        return holdfast.tool(name=name, **declarations[name])(act)

    def _call(self, run: Run, name: str, key: str) -> Call:
        return self._calls.setdefault((self._rewinds, run.step, name, key), Call(returned=[]))

    # -- rules --------------------------------------------------------------------------------------------------------

    @rule()
    def claim(self) -> None:
        held = self._holder is not None and self._now < self._until
        block = self._hf.run("t", start={"n": 0}, lease=LEASE)
        try:
            run = block.__enter__()
        except LeaseHeld:
            assert held
            return
        assert not held
        assert run._lease is not None
        run._lease.stop()  # the machine renews
        if self._holder is not None:
            self._stale.append(self._holder)
        self._holder = Worker(run)
        self._until = self._now + int(LEASE * 1000)
        assert run.state == {"n": self._saved}

    @rule(seconds=st.sampled_from([1, 10, 31]))
    def pass_time(self, seconds: int) -> None:
        self._now += seconds * 1000

    @precondition(lambda self: self._holder is not None)
    @rule()
    def renew(self) -> None:
        assert self._holder is not None
        assert self._holder.run._lease is not None
        self._holder.run._lease._renew()
        self._until = self._now + int(LEASE * 1000)

    @precondition(lambda self: self._holder is not None)
    @rule(name=tools, key=keys, die=st.booleans(), fail=st.booleans())
    def act(self, name: str, key: str, die: bool, fail: bool) -> None:
        assert self._holder is not None
        run = self._holder.run
        call = self._call(run, name, key)
        before = call.executed
        self._die, self._fail = die, fail and not die
        try:
            result = run.tool(self._tool(name, call), {}, key=key)
        except Parked as parked:
            call.doubtful = True
            self._park(name, parked)
        except Died:
            assert call.executed == before + 1
            call.doubtful = name != "look"
            self._crash()
        except ConnectionError:
            assert name in ("look", "pay")
            assert call.executed == before + 1
        else:
            if call.returned and name != "look":
                assert call.executed == before, "a recorded result was executed again"
                assert result == call.returned[-1]
            assert call.executed, "the result is that of another branch or step"
            call.doubtful = False
            call.returned.append(result)
        finally:
            self._die = self._fail = False

    def _park(self, name: str, parked: Parked) -> None:
        assert name == "post"
        assert self._holder is not None
        assert self._holder.run._leave(parked)
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
        run.state["n"] = self._saved = self._saved + 1
        run.save()
        # A checkpoint may renew the lease, and never shortens it.
        thread = self._hf._session.store.thread("t")
        assert thread is not None
        row = self._hf._session.store.run(thread.position.thread)
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
        self._holder.run._leave(error)
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
            lambda: run.tool(self._tool("post", call), {}, key=f"late {key}"),
        ]
        with pytest.raises(HoldfastError):  # LeaseLost, or its block has ended
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
            if effect.status in ("begun", "in_doubt"):
                self._hf.settle("t", effect, outcome)
                call.doubtful = False
                if isinstance(outcome, NotDone):
                    call.allowed = call.executed + 1
                elif isinstance(outcome, Happened):
                    call.returned.append("settled")
                return
            with pytest.raises(Conflict):
                self._hf.settle("t", effect, Happened("something else"))

    @precondition(lambda self: self._holder is None and self._saved > 0)
    @rule()
    def rewind(self) -> None:
        """A branch begins: nothing that was recorded counts in it."""
        thread = self._hf.thread("t")
        thread.rewind("@0")
        self._rewinds += 1
        self._saved = 0

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def irreversible_effects_happen_at_most_once(self) -> None:
        for (_, _, name, _), call in self._calls.items():
            if name in ("post", "mail"):
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
    return MemoryStore(namespace="default", clock=clock)


def _open_sqlite(path: Path, clock: Callable[[], Clock]) -> Store:
    return SQLiteStore(path, namespace="default", durability="off", clock=clock)


class MemoryMachine(RunMachine):
    open_store = staticmethod(_open_memory)


class SQLiteMachine(RunMachine):
    open_store = staticmethod(_open_sqlite)


_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much]
TestMemoryRuns = MemoryMachine.TestCase
TestMemoryRuns.settings = settings(
    max_examples=300, stateful_step_count=30, deadline=None, suppress_health_check=_QUIET
)
TestSQLiteRuns = SQLiteMachine.TestCase
TestSQLiteRuns.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=_QUIET)
