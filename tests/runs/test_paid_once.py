"""A call is paid once, and its result stays: interrupts, unknown outcomes, saves at unusual places, and releases."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import InvalidArgument, Never, Run
from holdfast.aio.run import AsyncRun
from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.runs.journal import Journal
from holdfast.signals import shield
from holdfast.stores.contract import Store
from tests.runs.conftest import World
from tests.selection import every_store

pytestmark = every_store("each store commits, and reports its outcome, in its own way")


class Between:
    """A store that does something after one of its writes has become durable."""

    def __init__(self, store: Store, after: Callable[[str, tuple[Any, ...]], None]) -> None:
        self._store = store
        self._after = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("commit", "journal", "head"):
            return found

        def call(*args: Any, **options: Any) -> Any:
            with shield:
                answer = found(*args, **options)
                self._after(name, args)
            return answer

        return call


class Once:
    """Raises an error, or sends a signal, after the first write that matches."""

    def __init__(self, matches: Callable[[str, tuple[Any, ...]], bool], fault: BaseException | None = None) -> None:
        self._matches = matches
        self._fault = fault
        self.is_armed = True

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        if self.is_armed and self._matches(name, args):
            self.is_armed = False
            if self._fault is not None:
                raise self._fault
            signal.raise_signal(signal.SIGINT)


class Till:
    def __init__(self) -> None:
        self.paid: list[int] = []
        self.pay = holdfast.tool(effect="irreversible", name="pay")(self._pay)

    def _pay(self, amount: int) -> str:
        self.paid.append(amount)
        return f"receipt {amount}"


def is_commit(name: str, args: tuple[Any, ...]) -> bool:
    return name == "commit" and args[0].fence is not None


def is_result(name: str, args: tuple[Any, ...]) -> bool:
    return name == "journal" and any(entry.status == "done" for entry in args[2])


def saving(till: Till, run: Run) -> None:
    run.tool(till.pay, {"amount": 1})
    run.save()
    run.tool(till.pay, {"amount": 2})
    run.save()
    run.finish("ok")


async def saving_async(till: Till, run: AsyncRun) -> None:
    await run.tool(till.pay, {"amount": 1})
    await run.save()
    await run.tool(till.pay, {"amount": 2})
    await run.save()
    await run.finish("ok")


# -- a write and its note -----------------------------------------------------------------------------------------


def test_an_interrupt_of_a_save_pays_once(world: World) -> None:
    till, once = Till(), Once(is_commit)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with world.failing(
            "t", KeyboardInterrupt, world.open(store=lambda store: Between(store, once)), start={}
        ) as run:
            saving(till, run)
    finally:
        signal.signal(signal.SIGINT, handler)
    with world.running("t", ends="completed") as run:
        saving(till, run)
    assert till.paid == [1, 2]


@pytest.mark.parametrize("fault", [OutcomeUnknown("lost"), SystemError("a handler of another signal")])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_save_with_an_unknown_outcome_pays_once(world: World, is_async: bool, fault: Exception) -> None:
    till, once = Till(), Once(is_commit, fault)
    hf = world.open(store=lambda store: Between(store, once))

    async def block() -> None:
        async with hf.aio.run("t", start={}) as run:
            await saving_async(till, run)

    def sync_block() -> None:
        with hf.run("t", start={}) as run:
            saving(till, run)

    with pytest.raises(type(fault)):
        asyncio.run(block()) if is_async else sync_block()
    with world.running("t", ends="completed") as run:
        saving(till, run)
    assert till.paid == [1, 2]


def test_a_save_with_an_unknown_outcome_can_be_repeated_in_its_block(world: World) -> None:
    till, once = Till(), Once(is_commit, OutcomeUnknown("lost"))
    hf = world.open(store=lambda store: Between(store, once))
    with world.running("t", hf, start={}, ends="completed") as run:
        run.tool(till.pay, {"amount": 1})
        with pytest.raises(OutcomeUnknown):
            run.save()
        run.save()
        run.finish("ok")
    assert till.paid == [1]


def test_a_finish_with_an_unknown_outcome_is_not_taken_back(world: World) -> None:
    till, once = Till(), Once(is_commit, OutcomeUnknown("lost"))
    hf = world.open(store=lambda store: Between(store, once))
    with world.failing("t", OutcomeUnknown, hf, start={}) as run:
        run.tool(till.pay, {"amount": 1})
        run.finish("ok")
    info = world.open().run_info("t")
    assert info is not None
    assert info.status == "completed"


def test_a_run_whose_save_cannot_be_looked_up_keeps_its_record(world: World) -> None:
    till = Till()
    unknown, away = Once(is_commit, OutcomeUnknown("lost")), Once(lambda name, _: name == "head", StoreError("away"))
    away.is_armed = False

    def after(name: str, args: tuple[Any, ...]) -> None:
        try:
            unknown(name, args)
        except OutcomeUnknown:
            away.is_armed = True
            raise
        away(name, args)

    hf = world.open(store=lambda store: Between(store, after))
    with world.failing("t", OutcomeUnknown, hf, start={}) as run:
        saving(till, run)
    world.pass_time(100)
    with world.running("t", ends="completed") as run:
        saving(till, run)
    assert till.paid == [1, 2]


@pytest.mark.parametrize("fault", [OutcomeUnknown("lost"), SystemError("a handler of another signal")])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_the_release_of_a_run_keeps_a_result_that_it_does_not_know(
    world: World, is_async: bool, fault: Exception
) -> None:
    till, once = Till(), Once(is_result, fault)
    hf = world.open(store=lambda store: Between(store, once))

    async def block() -> None:
        async with hf.aio.run("t", start={}) as run:
            await run.tool(till.pay, {"amount": 1})

    def sync_block() -> None:
        with hf.run("t", start={}) as run:
            run.tool(till.pay, {"amount": 1})

    with pytest.raises((OutcomeUnknown, SystemError)):
        asyncio.run(block()) if is_async else sync_block()
    [effect] = world.open().effects("t")
    assert (effect.status, effect.result) == ("done", "receipt 1")
    with world.running("t") as run:
        assert run.tool(till.pay, {"amount": 1}) == "receipt 1"
    assert till.paid == [1]


def test_a_call_with_an_unknown_record_is_answered_in_the_same_block(world: World) -> None:
    till, once = Till(), Once(is_result, OutcomeUnknown("lost"))
    hf = world.open(store=lambda store: Between(store, once))
    with world.running("t", hf, start={}) as run:
        with pytest.raises(OutcomeUnknown):
            run.tool(till.pay, {"amount": 1}, key="k")
        assert run.tool(till.pay, {"amount": 1}, key="k") == "receipt 1"
        run.save()
    assert till.paid == [1]


# -- saves at unusual places ----------------------------------------------------------------------------------------


def test_a_save_before_the_first_call_is_repeated(world: World) -> None:
    till = Till()

    def program(run: Run) -> None:
        run.state["started"] = True
        run.save()
        run.tool(till.pay, {"amount": 1})

    with world.dying("t", start={}) as run:
        program(run)
    with world.running("t", ends="completed") as run:
        program(run)
        run.finish()
    assert till.paid == [1]


def test_a_step_that_starts_with_a_save_is_repeated(world: World) -> None:
    till = Till()

    def program(run: Run, until: int) -> None:
        run.save()
        for _ in run.steps():
            if run.state["n"] == until:
                break
            run.save()
            run.tool(till.pay, {"amount": run.state["n"]})
            run.state["n"] += 1
            if run.state["n"] == 2 and until == 3:
                world.kill(run)

    with world.dying("t", start={"n": 0}) as run:
        program(run, 3)
    with world.running("t", ends="completed") as run:
        program(run, 4)
        run.finish()
    assert till.paid == [0, 1, 2, 3]


@pytest.mark.parametrize("policy", [None, Never()])
def test_a_state_that_changes_after_a_save_is_resumed_as_it_was(world: World, policy: Any) -> None:
    replies: list[int] = []

    def model(n: int) -> str:
        replies.append(n)
        return f"reply {n}"

    def program(run: Run, *, dies: bool) -> None:
        for _ in run.steps():
            n = run.state["n"]
            if n == 4:
                break
            run.state["log"].append(run.model(model, n))
            run.save()
            if dies and n == 2:
                world.kill(run)
            run.state["n"] += 1

    with world.dying("t", start={"n": 0, "log": []}, policy=policy) as run:
        program(run, dies=True)
    with world.running("t", ends="completed", policy=policy) as run:
        program(run, dies=False)
        run.finish(run.state["log"])
    assert run.result == ["reply 0", "reply 1", "reply 2", "reply 3"]
    assert replies == [0, 1, 2, 3]


def test_a_save_at_the_end_of_a_step_is_a_boundary_if_the_state_is_as_it_was(world: World) -> None:
    with world.dying("t", start={"n": 0}, policy=Never()) as run:
        ticket = run.model(lambda: "ticket", key="ticket")
        for step in run.steps():
            run.model(lambda n: n, run.state["n"])
            run.state["n"] += 1
            run.save()
            if step == 7:
                break
    with world.running("t", policy=Never()) as run:
        assert run.state["n"] == 3  # the save after it wrote that the step before it is closed
        assert run.model(lambda: "another", key="ticket") == ticket


# -- leases, names, questions ---------------------------------------------------------------------------------------


def test_a_store_that_fails_right_after_the_claim_leaves_no_lease(world: World) -> None:
    heads: list[str] = []

    def after(name: str, _: tuple[Any, ...]) -> None:
        heads.extend([name] if name == "head" else [])
        if len(heads) == 2:
            raise StoreError("away")

    before = threading.active_count()
    with pytest.raises(StoreError), world.open(store=lambda store: Between(store, after)).run("t", start={}):
        pass
    assert threading.active_count() == before


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_two_functions_of_one_name_and_key_are_not_one_call(world: World, is_async: bool) -> None:
    @holdfast.tool(name="send")
    def mail(to: str) -> str:
        return "mail"

    @holdfast.tool(name="send")
    def text(to: str) -> str:
        return "text"

    async def block() -> None:
        async with world.open().aio.run("t", start={}) as run:
            assert await run.tool(mail, {"to": "a"}, key="k") == "mail"
            with pytest.raises(InvalidArgument, match="another function"):
                await run.tool(text, {"to": "a"}, key="k")

    if is_async:
        asyncio.run(block())
        return
    with world.running("t", start={}) as run:
        assert run.tool(mail, {"to": "a"}, key="k") == "mail"
        assert run.tool(mail, {"to": "a"}, key="k") == "mail"
        with pytest.raises(InvalidArgument, match="another function"):
            run.tool(text, {"to": "a"}, key="k")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_acting_call_whose_arguments_are_redacted_needs_a_key(world: World, is_async: bool) -> None:
    till = Till()
    hf = world.open(redact=lambda text: text.replace("DE1", "[iban]").replace("DE2", "[iban]"))

    @holdfast.tool
    def transfer(iban: str) -> str:
        till.paid.append(1)
        return iban[-1]

    async def block() -> None:
        async with hf.aio.run("t", start={}) as run:
            with pytest.raises(InvalidArgument, match="Pass key="):
                await run.tool(transfer, {"iban": "DE1"})

    if is_async:
        asyncio.run(block())
    else:
        with world.running("t", hf, start={}) as run, pytest.raises(InvalidArgument, match="Pass key="):
            run.tool(transfer, {"iban": "DE1"})
    assert till.paid == []
    with world.running("t", hf) as run:
        assert [run.tool(transfer, {"iban": iban}, key=iban[-1]) for iban in ("DE1", "DE2")] == ["1", "2"]


def test_memory_of_answered_calls_does_not_grow_with_steps(world: World) -> None:
    with world.running("t", start={}) as run:
        for step in run.steps():
            run.model(lambda n: n, step, key="k")
            if step == 30:
                break
        context = run.core.calls().context
        assert len(context.answered) <= 1


def test_calls_are_asked_for_while_others_are_listed(world: World) -> None:
    with world.running("t", start={}) as run:
        journal = run.core.calls().context.journal
        for number in range(300):
            run.model(lambda n: n, number, key=str(number))
        places = list(journal._entries)
        errors: list[BaseException] = []
        done = threading.Event()

        def list_all() -> None:
            while not done.is_set():
                try:
                    journal.unrepeated(1)
                    journal.unrepeated_of_key(1, "x")
                except RuntimeError as error:
                    errors.append(error)

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        listing = threading.Thread(target=list_all)
        listing.start()
        try:
            for _ in range(20):
                with journal._lock:
                    journal._unrepeated = dict.fromkeys(places)
                for _, key in places:
                    assert isinstance(journal, Journal)
                    journal.find(1, key)
        finally:
            done.set()
            listing.join()
            sys.setswitchinterval(before)
        assert not errors
