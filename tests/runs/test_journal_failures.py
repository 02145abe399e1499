"""Errors that the program caught and went on from: after a crash it must not act twice because of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, EveryN, Happened, InvalidArgument, NotDone, ToolNotDone
from holdfast.runs.record import error_of
from holdfast.stores.contract import Store
from tests.covers import covers
from tests.runs.conftest import Crash, World
from tests.selection import every_store


class Flaky:
    """A model that is not reachable the first times, and gives each reply an id of its own."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError("busy")
        return {"id": f"call_{self.calls}"}


@covers("continuum/RetryPolicy jitter")
def test_a_model_call_that_is_retried_is_one_call(world: World) -> None:
    model, charged = Flaky(1), []

    def charge() -> None:
        charged.append(1)

    def step(run: holdfast.Run) -> None:
        for _ in range(3):
            try:
                reply = run.model(model)
                break
            except ConnectionError:
                continue
        run.tool(charge, {}, key=reply["id"])

    with world.dying("t", start={}) as run:
        step(run)
    with world.running("t") as run:
        step(run)
    assert (model.calls, charged) == (2, [1])


def test_a_tool_that_was_not_done_and_then_was_is_one_call(world: World) -> None:
    tries: list[int] = []
    charged: list[int] = []

    def charge() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ToolNotDone("the bank was closed")
        charged.append(1)
        return "paid"

    def step(run: holdfast.Run) -> str:
        try:
            return str(run.tool(charge, {}))
        except ToolNotDone:
            return str(run.tool(charge, {}))

    with world.dying("t", start={}) as run:
        assert step(run) == "paid"
    with world.running("t") as run:
        assert step(run) == "paid"
    assert charged == [1]


@pytest.mark.parametrize(
    "error", [holdfast.Unsupported("$.when", "no such type"), holdfast.LeaseLost("another has it")]
)
def test_a_read_that_is_not_retried_in_spite_of_its_retries_was_seen_by_the_program(
    world: World, error: Exception
) -> None:
    """So it is raised again after a crash: the program continued after it, and must take the same way."""
    reads: list[int] = []

    @holdfast.tool(effect="read", retry=holdfast.Retry(3, first=0))
    def read() -> str:
        reads.append(1)
        if len(reads) == 1:
            raise error
        return "found"

    def step(run: holdfast.Run) -> str:
        try:
            return str(run.tool(read, {}, key="r"))
        except type(error):
            return "seen, then " + str(run.tool(read, {}, key="r"))

    with world.dying("t", start={}) as run:
        assert step(run) == "seen, then found"
        run.model(lambda: "writes what was read")
    assert len(reads) == 2
    with world.running("t") as run:
        assert step(run) == "seen, then found"
    assert len(reads) == 2


def test_a_read_that_is_retried_at_once_was_not_seen_by_the_program(world: World) -> None:
    reads: list[int] = []

    @holdfast.tool(effect="read", retry=holdfast.Retry(3, first=0))
    def read() -> str:
        reads.append(1)
        if len(reads) == 1:
            raise ConnectionError("busy")
        return "found"

    with world.dying("t", start={}) as run:
        assert run.tool(read, {}, key="r") == "found"
        run.model(lambda: "writes what was read")
    with world.running("t") as run:
        assert run.tool(read, {}, key="r") == "found"
    assert len(reads) == 2


def test_what_was_not_done_and_made_up_for_otherwise_is_not_done_later(world: World) -> None:
    charged: list[str] = []

    @holdfast.tool(name="charge")
    def charge(card: str) -> str:
        if card == "first" and not charged and not closed:
            closed.append(True)
            raise ToolNotDone("refused")
        charged.append(card)
        return "paid"

    closed: list[bool] = []

    def steps(run: holdfast.Run) -> None:
        for step in run.steps():
            card = "first" if step == 1 else "second"
            try:
                run.tool(charge, {"card": card}, key=card)
            except ToolNotDone:
                continue
            return

    with world.dying("t", start={}, policy=EveryN(5)) as run:
        steps(run)
    with world.running("t", policy=EveryN(5)) as run:
        steps(run)
    assert charged == ["second"]


def test_a_model_is_not_asked_again_once_a_later_step_has_acted(world: World) -> None:
    replies = iter(range(10))

    def model(prompt: str) -> int:
        return next(replies)

    def charge() -> None:
        pass

    with world.dying("t", start={}, policy=EveryN(5)) as run:
        for step in run.steps():
            if step == 1:
                run.model(model, "now is 1")
            else:
                run.tool(charge, {}, key="k")
                break
    with world.running("t", policy=EveryN(5)) as run:
        for _ in run.steps():
            with pytest.raises(Conflict, match="recorded"):
                run.model(model, "now is 2", on_change="rerun")
            break


def test_one_key_is_not_for_two_calls_of_a_step(world: World) -> None:
    def add(n: int) -> int:
        return n

    with world.running("t", start={}) as run:
        assert run.tool(add, {"n": 1}, key="call_0") == 1
        assert run.tool(add, {"n": 1}, key="call_0") == 1
        with pytest.raises(InvalidArgument, match="its own key"):
            run.tool(add, {"n": 2}, key="call_0")


def test_names_with_the_separators_of_keys_do_not_mix_up_calls(world: World) -> None:
    names = ["a", "a/b", "a/b/c", "a#1", "a%2Fb", "model", "model f", "run.wait"]
    tools = [holdfast.tool(name=name)(partial(str, name)) for name in names]
    for _ in range(2):
        with pytest.raises(KeyError), world.running("t", start={}) as run:
            raise KeyError([run.tool(each, key=key) for each in tools for key in ("c", "b/c")])
    assert [(effect.name, effect.result) for effect in world.open().effects("t")] == [
        (name, name) for name in names for _ in range(2)
    ]


class Interposed:
    """A store before whose posts something else happens."""

    def __init__(self, store: Store, meanwhile: Any) -> None:
        self._store = store
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def post(self, *args: Any, **options: Any) -> None:
        self._meanwhile()
        self._store.post(*args, **options)


@every_store("two writers meet in the store")
def test_an_answer_is_refused_if_a_worker_has_just_taken_the_run(world: World) -> None:
    def charge() -> None:
        raise ConnectionResetError

    with world.running("t", start={}, ends="waiting") as run:
        run.tool(charge, {}, key="k")
    entered: list[Any] = []

    def claim() -> None:
        block = world.open(charge).run("t")
        entered.append((block, block.__enter__()))

    hf = world.open(store=lambda store: Interposed(store, claim))
    with pytest.raises(Conflict):
        hf.settle("t", 1, Happened("paid"))
    for block, _ in entered:
        block.__exit__(None, None, None)


def test_a_run_whose_state_cannot_be_stored_ends_dead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runs.worker._BACKOFF_SECONDS", (0.001,))
    calls: list[int] = []

    def handler(run: holdfast.Run) -> None:
        calls.append(1)
        run.state["bad"] = object()
        run.save()

    hf = world.open()
    hf.submit("h", "t", start={})
    for _ in range(10):
        hf.worker({"h": handler}, attempts=3).run(until_idle=True)
        world.pass_time(1)
    assert len(calls) == 3
    assert [info.status for info in hf.threads()] == ["dead"]


@every_store("two writers meet in the store")
def test_workers_side_by_side_run_each_run_once(world: World) -> None:
    handled: list[str] = []
    lock = threading.Lock()

    def handler(run: holdfast.Run) -> None:
        with lock:
            handled.append(run.state["name"])
        run.halt("enough")

    hf = world.open()
    for n in range(40):
        hf.submit("h", f"t{n}", start={"name": f"t{n}"})
    hf.worker({"h": handler}, concurrency=8).run(until_idle=True)
    assert sorted(handled) == sorted(f"t{n}" for n in range(40))


def test_a_handler_that_exits_does_not_take_the_worker_along(world: World) -> None:
    done: list[str] = []

    def handler(run: holdfast.Run) -> None:
        if run.state["name"] == "t0":
            raise SystemExit(3)
        done.append(run.state["name"])

    hf = world.open()
    for n in range(3):
        hf.submit("h", f"t{n}", start={"name": f"t{n}"})
    hf.worker({"h": handler}).run(until_idle=True)
    assert sorted(done) == ["t1", "t2"]


class Unavailable(Exception):
    """Of the provider's own package: what a program catches by class."""


class Backwards(Exception):
    """Its text is made of an attribute, which a journal does not keep."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


@covers("continuum/ErrorRecovery.with_fallback", "continuum/FallbackStrategy", "continuum/ErrorRecovery.new")
@covers("cortex/DurableConfig.continue_on_failure", "cortex/test_continue_on_failure", "cortex/StepStatus.Skipped")
@pytest.mark.parametrize("kind", [Unavailable, ConnectionError, TimeoutError, KeyError, UnicodeError, Backwards])
@pytest.mark.parametrize("fails", ["model", "read", "idempotent", "declared"])
def test_a_failure_that_the_program_went_on_from_fails_again(world: World, fails: str, kind: type[Exception]) -> None:
    """The trap: made again, the call would succeed, and the program would act in both ways."""
    acted: list[str] = []
    tries: list[int] = []

    def attempt() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise kind(500)
        return "up again"

    tool = holdfast.tool(effect="irreversible", not_done=(kind,), name="try")(attempt)
    if fails in ("read", "idempotent"):
        tool = holdfast.tool(effect="read" if fails == "read" else "idempotent", name="try")(attempt)

    def act(way: str) -> None:
        acted.append(way)

    def step(run: holdfast.Run) -> None:
        try:
            run.model(attempt) if fails == "model" else run.tool(tool, {})
        except (kind, holdfast.errors.CallFailed):
            run.tool(act, {"way": "fallback"})
        else:
            run.tool(act, {"way": "first"})

    with world.dying("t", start={}) as run:
        step(run)
    with world.running("t") as run:
        step(run)
    assert (acted, len(tries)) == (["fallback"], 1)


def test_a_failure_that_nobody_went_on_from_is_no_reason_to_fail_again(world: World) -> None:
    tries: list[int] = []

    def model() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise Unavailable
        return "up again"

    with world.dying("t", start={}) as run, pytest.raises(Unavailable):
        run.model(model)
    with world.failing("t", Unavailable) as run:
        run.model(model)
    with world.running("t") as run:
        assert run.model(model) == "up again"


def unlocking() -> Callable[[holdfast.Run], str]:
    """A step whose model is not there at the first try, and that calls a tool in a `finally` clause."""
    tries: list[int] = []

    def model() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise Unavailable
        return "up again"

    def unlock() -> None:
        pass

    def step(run: holdfast.Run) -> str:
        try:
            return str(run.model(model, key="m"))
        finally:
            run.tool(unlock, {}, key="u")

    return step


def test_a_failure_that_ended_the_run_is_tried_again_although_something_came_after_it(world: World) -> None:
    """A tool in a `finally` clause, or calls beside it, must not make a run fail for ever."""
    step = unlocking()
    with world.failing("t", Unavailable, start={}) as run:
        step(run)
    with world.running("t") as run:
        assert step(run) == "up again"


def test_a_crash_after_such_a_failure_costs_one_more_attempt_at_most(world: World) -> None:
    step = unlocking()
    with world.dying("t", start={}) as run, pytest.raises(Unavailable):
        step(run)
    with world.failing("t", Unavailable) as run:
        step(run)
    with world.running("t") as run:
        assert step(run) == "up again"


def test_a_class_that_is_not_loaded_comes_back_as_call_failed() -> None:
    for text in ("os.system: x", "nowhere.Gone: x", "holdfast.open: x", "builtins: x", "object: x", "type: x", ": x"):
        assert type(error_of(text)) is holdfast.errors.CallFailed
    assert type(error_of("ValueError: x")) is ValueError
    assert str(error_of("ValueError: x: y")) == "x: y"


def test_making_a_failure_again_runs_no_code_of_its_class() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unavailable, "__new__", lambda *_: pytest.fail("called"), raising=False)
        patch.setattr(Unavailable, "__init__", lambda *_: pytest.fail("called"))
        assert isinstance(error_of(f"{__name__}.Unavailable: x"), Unavailable)


class Flood:
    """A model that fails some times, then answers. What was told to people in between stands in a list."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.asked = 0
        self.told: list[str] = []

    def ask(self) -> str:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise Unavailable(f"{self.left} more")
        return "reply"

    def tell(self, text: str) -> None:
        self.told.append(text)

    def step(self, run: holdfast.Run) -> str:
        """The usual loop: try, tell somebody, try again; then say that it worked."""
        for attempt in itertools.count():
            try:
                reply = str(run.model(self.ask))
            except Unavailable:
                run.tool(self.tell, {"text": f"attempt {attempt} failed"})
            else:
                run.tool(self.tell, {"text": "it worked"})
                return reply
        return ""


@pytest.mark.parametrize("dies_after", range(1, 8))
def test_each_failure_is_raised_again_once_and_then_the_call_is_made(
    world: World, monkeypatch: pytest.MonkeyPatch, dies_after: int
) -> None:
    flood = Flood(3)
    writes: list[int] = []
    with world.dying("t", start={}) as run:
        write = run.core.calls().context.journal.write

        def counted(*args: Any, **options: Any) -> Any:
            row = write(*args, **options)
            writes.append(1)
            if len(writes) == dies_after:
                raise Crash
            return row

        monkeypatch.setattr(run.core.calls().context.journal, "write", counted)
        flood.step(run)
    # What is in doubt happened: the tool appends before anything else.
    hf = world.open()
    for effect in hf.effects("t"):
        if effect.status in ("started", "in_doubt"):
            if effect.arguments["text"] in flood.told:
                hf.settle("t", effect, Happened(None))
            else:
                hf.settle("t", effect, NotDone())
    with world.running("t", hf) as run:
        assert flood.step(run) == "reply"
    assert flood.told == ["attempt 0 failed", "attempt 1 failed", "attempt 2 failed", "it worked"]
    assert flood.asked <= 5


@covers("cortex/DurableConfig.retry_delay", "continuum/RetryPolicy jitter")
def test_a_program_that_sleeps_between_tries_gets_to_try_again(world: World) -> None:
    flood = Flood(2)
    hf = world.open()
    hf.submit("h", "t", start={})

    def handler(run: holdfast.Run) -> str:
        while True:
            try:
                return str(run.model(flood.ask))
            except Unavailable:
                run.sleep(30)

    for _ in range(4):
        hf.worker({"h": handler}, attempts=2).run(until_idle=True)
        world.pass_time(31)
    assert [info.status for info in hf.threads()] == ["completed"]
    assert flood.asked == 3


def test_a_retry_of_holdfast_s_own_is_nothing_that_the_program_heard_of(world: World) -> None:
    tries: list[int] = []

    @holdfast.tool(effect="idempotent", retry=holdfast.Retry(3, first=0))
    def post() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise Unavailable
        return "posted"

    def act() -> None:
        pass

    with world.dying("t", start={}) as run:
        assert run.tool(post, {}) == "posted"
        run.tool(act, {})
    with world.running("t") as run:
        assert run.tool(post, {}) == "posted"
    assert len(tries) == 3


def test_errors_that_cannot_be_made_again_come_as_call_failed(world: World) -> None:
    kinds = (ExceptionGroup("several", [ValueError()]), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"))
    for number, error in enumerate(kinds):

        def fail(error: Exception = error) -> None:
            raise error

        def act() -> None:
            pass

        with world.dying(f"t{number}", start={}) as run:
            with pytest.raises(type(error)):
                run.model(fail)
            run.tool(act, {})
        with world.running(f"t{number}") as run, pytest.raises((holdfast.errors.CallFailed, type(error))):
            run.model(fail)


def test_what_is_settled_as_not_done_has_no_failure_that_could_be_raised_again(world: World) -> None:
    def pay() -> None:
        raise ConnectionError("cut")

    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.tool(pay, {}, key="a")
    assert hf.effects("t")[0].error is not None
    hf.settle("t", 1, NotDone())
    assert hf.effects("t")[0].error is None


@pytest.mark.parametrize("is_outside", [False, True])
def test_a_failure_after_which_the_call_succeeded_in_the_next_process_is_not_raised(
    world: World, is_outside: bool
) -> None:
    """The first process dies right after the failure, so the second makes the call again, and dies later."""
    acted: list[str] = []
    picks: list[int] = []

    @holdfast.tool(effect="irreversible")
    def pick() -> str:
        picks.append(1)
        if len(picks) == 1:
            raise ToolNotDone("closed")
        return "picked"

    @holdfast.tool(effect="irreversible")
    def act(what: str) -> None:
        acted.append(what)

    def choose(run: holdfast.Run, *, dies: bool) -> None:
        try:
            run.tool(pick, {}, key="k")
            choice = "purchase"
        except ToolNotDone:
            if dies:
                raise Crash from None
            choice = "invoice"
        run.tool(act, {"what": choice}, key=choice)
        if dies:
            raise Crash

    for dies in (True, True, False):
        block = world.dying("t", start={}) if dies else world.running("t", ends="completed")
        with block as run:
            if is_outside:
                choose(run, dies=dies)
            for _ in () if is_outside else run.steps():
                choose(run, dies=dies)
                break
            run.finish()
    assert (acted, len(picks)) == (["purchase"], 2)
