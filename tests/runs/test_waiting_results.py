"""Results that wait for a write: which ones do, what takes them along, and what a crash before the write costs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, NotDone, Run
from holdfast.adapters.langgraph.tool_journal import ToolJournal
from holdfast.errors import Closed, LeaseLost, OutcomeUnknown, StoreError
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import drive
from holdfast.runs.flusher import WAIT_SECONDS, Flusher, flusher
from holdfast.runs.tools import tool_of
from holdfast.stores.contract import Store
from tests.runs.conftest import LEASE, Crash, World, stop_renewing
from tests.selection import every_store
from tests.waiting import until

pytestmark = every_store("each store writes them")


class Counting:
    """Counts the writes of a run, and the entries in each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes: list[tuple[str, int]] = []
        self.fails = 0  # how many of the next writes fail
        self.unknown: str | None = None  # after the next write, no answer comes, and whether it is "stored" or "lost"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def journal(self, thread: int, fence: int, rows: Any, **more: Any) -> None:
        rows = tuple(rows)
        if rows:
            self._fail()
            self._miss(lambda: self._store.journal(thread, fence, rows, **more))
        self._store.journal(thread, fence, rows, **more)
        self.writes.append(("journal", len(rows)))

    def commit(self, commit: Any, *rest: Any, **more: Any) -> Any:
        self._fail()
        self._miss(lambda: self._store.commit(commit, *rest, **more))
        done = self._store.commit(commit, *rest, **more)
        self.writes.append(("commit", len(commit.entries)))
        return done

    def _fail(self) -> None:
        if self.fails:
            self.fails -= 1
            raise StoreError("the disk is away; nothing was changed")

    def _miss(self, write: Callable[[], Any]) -> None:
        unknown, self.unknown = self.unknown, None
        if unknown == "stored":
            write()
        if unknown is not None:
            raise OutcomeUnknown("the answer did not come")


class Service:
    """The world outside: what it did, by the idempotency key where it has one."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.keys: set[str] = set()

    def ask(self, prompt: str) -> str:
        self.calls["model"] += 1
        return f"reply to {prompt}"

    def put(self, what: str, idempotency_key: str) -> str:
        self.calls["put"] += 1
        self.keys.add(idempotency_key)
        return f"put {what}"

    def pay(self, what: str) -> str:
        self.calls["pay"] += 1
        return f"paid {what}"

    def find(self, what: str) -> object:
        self.calls["find"] += 1
        return holdfast.Happened(f"paid {what}") if self.calls["pay"] else NotDone()

    def tool(self, kind: str) -> Callable[..., Any]:
        if kind == "idempotent":
            return holdfast.tool(effect="idempotent", name="put")(self.put)
        if kind == "probed":
            return holdfast.tool(name="pay", probe=self.find, timeout=5)(self.pay)
        return holdfast.tool(name="pay")(self.pay)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture(autouse=True)
def _no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the timer, what is written when does not depend on how fast the machine is."""
    monkeypatch.setattr(flusher, "is_off", True)


def opened(world: World) -> tuple[Holdfast, Counting]:
    counting: list[Counting] = []

    def put_between(store: Store) -> Any:
        counting.append(Counting(store))
        return counting[0]

    return world.open(store=put_between), counting[0]


def die_at_once(run: Run) -> None:
    """The process dies before the flusher writes what waits."""
    own = run.core.calls().context.journal
    own._unwritten.clear()
    own._pending_result = None
    raise Crash


def is_waiting(run: Run) -> bool:
    return run.core.calls().context.journal.pending_since is not None


def one_step(run: Run, service: Service, kind: str) -> None:
    for step in run.steps():
        if step > 1:
            run.finish()
            return
        run.model(service.ask, "a")
        run.tool(service.tool(kind), {"what": "x"})


# -- fewer writes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "writes"),
    [
        ("idempotent", [("journal", 1), ("commit", 1)]),  # the reply; the result and the checkpoint
        ("probed", [("journal", 2), ("commit", 1)]),  # the reply and the intent; the result and the checkpoint
        ("asking", [("journal", 2), ("journal", 1), ("commit", 0)]),  # the result on its own
    ],
)
def test_a_step_with_a_tool(world: World, service: Service, kind: str, writes: list[tuple[str, int]]) -> None:
    hf, counting = opened(world)
    with hf.run("t", start={}) as run:
        counting.writes.clear()
        for step in run.steps():
            if step > 1:
                break
            run.model(service.ask, "a")
            run.tool(service.tool(kind), {"what": "x"})
        assert counting.writes == writes
    assert service.calls == Counter({"model": 1, "put" if kind == "idempotent" else "pay": 1})
    assert [effect.status for effect in world.open().effects("t")] == ["done", "done"]


def test_a_step_with_a_model_is_one_write(world: World, service: Service) -> None:
    hf, counting = opened(world)
    with hf.run("t", start={}, policy=holdfast.EveryN(1)) as run:
        counting.writes.clear()
        for step in run.steps():
            if step > 3:
                break
            run.model(service.ask, str(step))
        assert counting.writes == [("commit", 1)] * 3


def test_every_call_finds_the_results_before_it_written(world: World, service: Service) -> None:
    hf, _counting = opened(world)
    other = world.open()

    def written() -> int:
        return sum(effect.status == "done" for effect in other.effects("t"))

    @holdfast.tool(effect="read")
    def read() -> int:
        return written()

    with hf.run("t", start={}) as run:
        run.model(service.ask, "a")
        assert written() == 0
        assert run.model(written) == 1
        assert run.tool(read, {}) == 2
        run.model(service.ask, "b")
        with run.child("c", start={}) as child:
            assert child.model(written) >= 3
            child.finish()
        run.model(service.ask, "c")
        assert next(iter(run.stream(lambda: iter([written()])))) >= 5


@pytest.mark.parametrize("how", ["left", "raised", "halted", "waiting", "interrupted"])
def test_the_end_of_the_block_writes_what_waits(world: World, service: Service, how: str) -> None:
    hf, _ = opened(world)
    try:
        with hf.run("t", start={}) as run:
            run.model(service.ask, "a")
            match how:
                case "raised":
                    raise ValueError("the program")
                case "interrupted":
                    raise KeyboardInterrupt
                case "halted":
                    run.halt("enough")
                case "waiting":
                    run.wait("a question")
    except (ValueError, KeyboardInterrupt):
        pass
    assert "done" in [effect.status for effect in world.open().effects("t")]
    with world.open().run("t") as run:
        run.model(service.ask, "a")
    assert service.calls["model"] == 1


# -- a crash before the write -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["idempotent", "probed", "asking"])
def test_a_crash_right_after_a_tool_acts_once(world: World, service: Service, kind: str) -> None:
    with world.dying("t", start={}) as run:
        for _ in run.steps():
            run.model(service.ask, "a")
            run.tool(service.tool(kind), {"what": "x"})
            die_at_once(run)
    world.pass_time(30)
    with world.running("t", ends="completed") as run:
        one_step(run, service, kind)
    assert service.calls["model"] == 1, "the reply was written with the intent, or before the call"
    assert service.calls["pay"] == (0 if kind == "idempotent" else 1)
    assert len(service.keys) == (1 if kind == "idempotent" else 0), "a rerun has the same idempotency key"
    assert service.calls["put"] == (2 if kind == "idempotent" else 0)


def test_a_crash_right_after_a_reply_costs_that_reply_alone(world: World, service: Service) -> None:
    with world.dying("t", start={}) as run:
        for prompt in ("a", "b", "c"):
            run.model(service.ask, prompt)
        die_at_once(run)
    with world.running("t") as run:
        assert [run.model(service.ask, prompt) for prompt in ("a", "b", "c")] == [
            f"reply to {p}" for p in ("a", "b", "c")
        ]
    assert service.calls["model"] == 4


class Rate:
    """A rate that differs at each look, and a service that is told it. The process dies while it is told first."""

    def __init__(self) -> None:
        self.looks = 0
        self.told: list[tuple[int, str]] = []

    def look(self) -> int:
        self.looks += 1
        return self.looks

    def fail_first(self) -> int:
        if not self.looks:
            self.looks += 1
            raise ValueError("away")
        return self.look()

    def ask(self, _time: float) -> int:
        return self.look()

    def tell(self, rate: int, idempotency_key: str) -> None:
        self.told.append((rate, idempotency_key))
        if len(self.told) == 1:
            raise Crash


@pytest.mark.parametrize("how", ["read", "read again", "failure", "changed"])
def test_what_an_idempotent_call_depends_on_is_kept(world: World, how: str) -> None:
    rate = Rate()
    tell = holdfast.tool(effect="idempotent", name="tell")(rate.tell)
    look = holdfast.tool(effect="read", name="look", max_age=0 if how == "read again" else None)(rate.look)

    def found(run: Run) -> int:
        match how:
            case "read":
                return int(run.tool(look, {}))
            case "read again":
                seen = int(run.tool(look, {}))
                run.model(lambda: "the read is written with this", key="reply")
                return seen
            case "changed":
                return int(run.model(rate.ask, time.time(), key="rate", on_change="rerun"))
        try:
            return int(run.model(rate.fail_first))
        except ValueError:
            return 0

    def one_step(run: Run) -> None:
        for step in run.steps():
            if step > 1:
                return
            run.tool(tell, {"rate": found(run)})

    with world.dying("t", start={}) as run:
        one_step(run)
    time.sleep(0.001)  # the read is too old by now
    if how == "changed":
        with world.failing("t", holdfast.Conflict) as run:
            one_step(run)
    else:
        with world.running("t") as run:
            one_step(run)
    assert len(set(rate.told)) == 1, "else it is told two rates, with two keys"


@pytest.mark.parametrize("is_resumed", [False, True])
def test_the_first_call_after_a_save_keeps_its_key(world: World, is_resumed: bool) -> None:
    rate = Rate()
    tell = holdfast.tool(effect="idempotent", name="tell")(rate.tell)

    def program(run: Run) -> None:
        run.save()
        for _ in run.steps():
            run.tool(tell, {"rate": 1})
            return

    if is_resumed:
        with world.dying("t", start={}) as run:
            run.save()
    with world.dying("t", start={}) as run:
        program(run)
    with world.running("t") as run:
        program(run)
    assert len(rate.told) == 2
    assert len(set(rate.told)) == 1


def test_a_journal_of_tools_keeps_the_key_of_a_call_that_was_under_way(world: World) -> None:
    keys: dict[str, set[str]] = {}
    deaths = ["dies"]

    @holdfast.tool(effect="idempotent")
    def put(what: str, idempotency_key: str) -> None:
        keys.setdefault(what, set()).add(idempotency_key)
        if what in deaths:
            deaths.clear()
            raise Crash

    def call(core: RunCore | None, what: str) -> None:
        tool = tool_of(put)
        assert core is not None
        assert tool is not None
        drive(core.calls().tool(tool, {"what": what}, what, caller=None))

    core = ToolJournal(world.open().context, "t", LEASE).enter()
    for number in range(70):  # so many that the next release closes them
        call(core, str(number))
    with suppress(Crash):
        call(core, "dies")
    assert core is not None
    assert core._lease is not None
    core._lease.stop()
    world.pass_time(LEASE + 1)
    run = ToolJournal(world.open().context, "t", LEASE)
    for what in ("another", "dies"):
        call(run.enter(), what)
        run.leave()
    assert len(keys["dies"]) == 1


# -- calls at the same time -------------------------------------------------------------------------------------------


def test_a_result_does_not_wait_while_another_call_is_under_way(world: World, service: Service) -> None:
    hf, _ = opened(world)
    other = world.open()
    is_started, may_end = threading.Event(), threading.Event()

    def slow() -> str:
        is_started.set()
        assert may_end.wait(60)
        return "slow"

    with hf.run("t", start={}) as run:
        thread = threading.Thread(target=lambda: run.model(slow, key="slow"))
        thread.start()
        assert is_started.wait(60)
        run.model(service.ask, "a", key="quick")
        assert [effect.status for effect in other.effects("t")] == ["done"]
        may_end.set()
        thread.join()


# -- the timer --------------------------------------------------------------------------------------------------------


def test_without_another_call_the_timer_writes(world: World, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "is_off", False)
    hf, _ = opened(world)
    other = world.open()
    with hf.run("t", start={}) as run:
        run.model(service.ask, "a")
        until(lambda: [effect.status for effect in other.effects("t")] == ["done"])


def test_the_timer_writes_the_results_of_many_runs(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "is_off", False)
    hf, _ = opened(world)
    other = world.open()
    leave = threading.Event()

    def work(name: str) -> None:
        with hf.run(name, start={}) as run:
            run.model(service.ask, name)
            assert leave.wait(60)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(12)]
    for each in threads:
        each.start()
    try:
        until(lambda: all(_statuses(other, f"t{number}") == ["done"] for number in range(12)))
    finally:
        leave.set()
        for each in threads:
            each.join()


def _statuses(hf: Holdfast, name: str) -> list[str]:
    try:
        return [effect.status for effect in hf.effects(name)]
    except holdfast.NotFound:
        return []


def test_an_async_run_waits_too(world: World, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    hf, counting = opened(world)

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            counting.writes.clear()
            async for step in run.steps():
                if step > 1:
                    break
                await run.model(service.ask, "a")
                await run.tool(service.tool("probed"), {"what": "x"})
            assert counting.writes == [("journal", 2), ("commit", 1)]
            monkeypatch.setattr(flusher, "is_off", False)
            await run.model(service.ask, "b")
            other = world.open()
            for _ in range(6000):
                if len(other.effects("t")) == 3:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("the timer did not write")

    asyncio.run(main())


# -- a store that fails -----------------------------------------------------------------------------------------------


def test_a_store_that_fails_is_tried_again_before_the_next_call(world: World, service: Service) -> None:
    hf, counting = opened(world)
    with hf.run("t", start={}) as run:
        run.model(service.ask, "a")
        counting.fails = 3
        run.model(service.ask, "b")
    assert counting.fails == 0
    with world.open().run("t") as run:
        run.model(service.ask, "a")
    assert service.calls["model"] == 2


def test_the_timer_tries_again(world: World, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "is_off", False)
    hf, counting = opened(world)
    other = world.open()
    with hf.run("t", start={}) as run:
        counting.fails = 3
        run.model(service.ask, "a")
        until(lambda: [effect.status for effect in other.effects("t")] == ["done"])
    assert counting.fails == 0


def test_a_commit_that_fails_leaves_the_result_to_the_end_of_the_block(world: World, service: Service) -> None:
    hf, counting = opened(world)
    with world.failing("t", StoreError, hf, start={}) as run:
        for _ in run.steps():
            run.model(service.ask, "a")
            counting.fails = 1
            run.save()
    assert counting.fails == 0
    with world.open().run("t") as run:
        for _ in run.steps():
            run.model(service.ask, "a")
            break
    assert service.calls["model"] == 1


def test_the_timer_writes_after_a_commit_that_failed(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf, counting = opened(world)
    with hf.run("t", start={}) as run:
        run.model(service.ask, "a")
        monkeypatch.setattr(flusher, "is_off", False)
        counting.fails = 1
        with pytest.raises(StoreError):
            run.save()
        until(lambda: [effect.status for effect in world.open().effects("t")] == ["done"])


def test_a_store_that_does_not_answer_delays_no_other_run(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, counting = opened(world)
    hf, may_end, is_stuck = world.open(), threading.Event(), threading.Event()

    def never_soon() -> None:
        is_stuck.set()
        assert may_end.wait(60)

    with silent.run("silent", start={}) as run, hf.run("t", start={}) as other:
        monkeypatch.setattr(flusher, "is_off", False)
        monkeypatch.setattr(counting, "_fail", never_soon)
        try:
            run.model(service.ask, "a")
            assert is_stuck.wait(60)
            other.model(service.ask, "b")
            until(lambda: not is_waiting(other))
        finally:
            may_end.set()


def test_the_timer_forgets_a_run_whose_handle_was_closed(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf, counting = opened(world)
    monkeypatch.setattr(flusher, "is_off", False)
    with world.failing("t", holdfast.HoldfastError, hf, start={}) as run:
        counting.fails = 1_000_000
        run.model(service.ask, "a")
        until(lambda: counting.fails < 1_000_000)
        counting.fails = 0
        monkeypatch.setattr(counting, "journal", closed)
        raise holdfast.HoldfastError("the end of the program")
    until(lambda: not flusher._due and not flusher._again)


def closed(*_: Any, **__: Any) -> None:
    raise Closed("the store was closed; nothing was done")


def test_results_are_written_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    program = f"""
import threading, time, holdfast

hf = holdfast.open("sqlite:///{tmp_path / "agent.db"}")
main, together = threading.main_thread(), threading.Barrier(4)

def work(name):
    with hf.run(name, start={{}}) as run:
        main.join()
        together.wait(60)
        run.model(lambda: "reply", key="a")
        until = time.monotonic() + 60
        while not hf.effects(name):
            assert time.monotonic() < until, "it waits"
            time.sleep(0.01)

for number in range(4):
    threading.Thread(target=work, args=(f"t{{number}}",)).start()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("then", ["call", "save", "timer"])
@pytest.mark.parametrize("write", ["journal", "commit"])
@pytest.mark.parametrize("unknown", ["stored", "lost"])
def test_a_write_with_an_unknown_outcome_is_not_made_twice(
    world: World, service: Service, unknown: str, write: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf, counting = opened(world)
    other = world.open()
    with hf.run("t", start={}) as run:
        for _ in run.steps():
            monkeypatch.setattr(flusher, "is_off", then != "timer")
            counting.unknown = unknown
            run.model(service.ask, "a", key="a")
            if write == "commit":
                with suppress(OutcomeUnknown):
                    run.save()
            match then:
                case "call":
                    with suppress(OutcomeUnknown):
                        run.model(service.ask, "b", key="b")
                    run.model(service.ask, "c", key="c")
                case "save":
                    with suppress(OutcomeUnknown):
                        run.save()
                    run.save()
                case "timer":
                    until(lambda: counting.unknown is None and not is_waiting(run))
            break
    keys = [effect.key for effect in other.effects("t")]
    assert len(keys) == len(set(keys)) == service.calls["model"]


@pytest.mark.parametrize("is_in_step", [False, True])
def test_a_call_after_a_save_with_an_unknown_outcome_is_made_once(
    world: World, service: Service, is_in_step: bool
) -> None:
    hf, counting = opened(world)

    def save_and_pay(run: Run) -> None:
        with suppress(OutcomeUnknown):
            run.save()
        run.tool(service.tool("asking"), {"what": "x"})

    def program(run: Run) -> None:
        if not is_in_step:
            save_and_pay(run)
            return
        for _ in run.steps():
            save_and_pay(run)
            return

    with world.dying("t", hf, start={}) as run:
        counting.unknown = "stored"
        program(run)
    with world.running("t") as run:
        program(run)
    assert service.calls["pay"] == 1


def test_the_result_of_a_lost_run_is_kept_for_a_person(world: World, service: Service) -> None:
    with world.failing("t", LeaseLost, start={}) as run:
        run.model(service.ask, "a")
        stop_renewing(run)
        world.pass_time(LEASE + 1)
        with world.dying("t"):
            pass
        run.model(service.ask, "b")
    assert [effect.status for effect in world.open().effects("t")] == ["late"]
    assert service.calls["model"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_its_own_timer(world: World, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "is_off", False)
    hf, _ = opened(world)
    with hf.run("t", start={}) as run:
        run.model(service.ask, "a")
        time.sleep(0)
        child = os.fork()
        if not child:
            is_new = flusher._thread is None and not flusher._due
            os._exit(0 if is_new else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_result_that_was_taken_along_does_not_hurry_the_next_one() -> None:
    class Waits:
        """A journal whose first result was taken along, and whose second waits since 0.1 seconds after it."""

        pending_since: float | None = 100.1

        def write_pending(self) -> bool:
            raise AssertionError("it was written too early")

    own = Flusher()
    journal = Waits()
    own._due.append((100.005, journal))
    own._hand_over(own._due, 100.101)
    assert list(own._due) == [(100.1 + WAIT_SECONDS, journal)]
    journal.pending_since = None
    own._hand_over(own._due, 100.2)
    assert not own._due
    assert not own._queued
