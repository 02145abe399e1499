"""The seam of adapters, in one process: the current run, scopes, suspension, calls in two parts, sync frameworks."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Self

import pytest

import holdfast
from holdfast import Cancelled, Happened, Holdfast, InvalidArgument, Retry, Run, Waiting, current_call, current_run
from holdfast.adapters import seam as seams
from holdfast.adapters.seam import Codec, Seam, checked, current, require, turns
from holdfast.errors import EffectMismatch


def here() -> Seam:
    found = current()
    assert found is not None
    return found


# -- the current run ----------------------------------------------------------------------------------------------


def test_the_current_run_is_that_of_the_block(hf: Holdfast) -> None:
    assert current_run() is None
    assert current() is None
    with hf.run("t", start={}) as run:
        assert current_run() is run
        with run.child("c", start={}) as child:
            assert current_run() is child
        assert current_run() is run
        run.finish()
        assert current() is None  # the run has ended
    assert current_run() is None


def test_tasks_and_threads_inherit_the_current_run(hf: Holdfast) -> None:
    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            assert current_run() is run
            assert await asyncio.create_task(_found()) is run
            assert await asyncio.to_thread(current_run) is run
        assert current_run() is None

    async def _found() -> Any:
        return current_run()

    asyncio.run(main())
    unrelated: list[Any] = []
    with hf.run("u", start={}):
        thread = threading.Thread(target=lambda: unrelated.append(current_run()))
        thread.start()
        thread.join()
    assert unrelated == [None]


def test_the_current_call_has_the_idempotency_key(hf: Holdfast) -> None:
    seen: list[Any] = []

    @holdfast.tool(effect="idempotent")
    def pay(amount: int, idempotency_key: str) -> None:
        call = current_call()
        assert call is not None
        seen.append((call.name, call.key, call.attempt, call.idempotency_key == idempotency_key))

    assert current_call() is None
    with hf.run("t", start={}) as run:
        run.tool(pay, {"amount": 1}, key="a")
        assert current_call() is None

    async def main() -> None:
        async with hf.aio.run("u", start={}):

            async def tool() -> None:
                call = current_call()
                assert call is not None
                seen.append((call.name, call.key, len(call.idempotency_key)))

            await here().tool("send", tool, {}, key="c1")

    asyncio.run(main())
    assert seen == [("pay", "a", 1, True), ("send", "c1", 64)]


def test_a_scope_is_before_the_keys_of_its_calls(hf: Holdfast) -> None:
    with hf.run("t", start={}) as run:
        for name in ("a", "b"):
            with run.scope(name), run.scope("inner"):
                run.tool(_echo, {"value": name}, key="k")
                here().model_sync("agent", partial(str, name), request=1)
        with pytest.raises(InvalidArgument, match="name of a scope"), run.scope(""):
            pass
    results = [effect.result for effect in hf.effects("t")]
    assert results == ["a", "a", "b", "b"]


@holdfast.tool(effect="idempotent")
def _echo(value: str) -> str:
    return value


# -- models -------------------------------------------------------------------------------------------------------


class Stop(Exception):
    """Ends a block."""


@contextmanager
def interrupted(hf: Holdfast) -> Iterator[None]:
    """A block of a run that ends with an error, so that the next block resumes the run."""
    with suppress(Stop), hf.run("t", start={}):
        yield
        raise Stop


def test_a_model_call_is_found_by_its_request_and_not_by_its_order(hf: Holdfast) -> None:
    def ask(question: str) -> Any:
        return here().model_sync(question, lambda: f"live {question}", request=question)

    with interrupted(hf):
        assert ask("a") == "live a"
    with hf.run("t"):
        assert ask("b") == "live b"
        assert here().model_sync("a", lambda: "again", request="a") == "live a"


@pytest.mark.parametrize(("on_change", "reply"), [("recorded", "first"), ("rerun", "second")])
def test_a_request_with_the_time_in_it(hf: Holdfast, on_change: Any, reply: str) -> None:
    with interrupted(hf):
        here().model_sync("agent", lambda: "first", request="at 10:00")
    with hf.run("t") as run:
        assert here().model_sync("agent", lambda: "second", request="at 10:05", on_change=on_change) == reply
        assert [effect.name for effect in run.changed] == ["agent"]


def test_a_changed_request_is_refused_if_the_adapter_says_so(hf: Holdfast) -> None:
    with interrupted(hf):
        here().model_sync("agent", lambda: "first", request="at 10:00")
    with pytest.raises(EffectMismatch, match="differs from the recorded one"), hf.run("t"):
        here().model_sync("agent", lambda: "second", request="at 10:05", on_change="refuse")


def test_equal_requests_are_counted(hf: Holdfast) -> None:
    for times in (2, 3):
        with interrupted(hf):
            replies = [here().model_sync("agent", partial(int, n), request="again") for n in range(times)]
        assert replies == list(range(times))


def test_one_agent_in_two_tasks_needs_scopes(hf: Holdfast) -> None:
    async def ask(request: str, is_reached: asyncio.Event, may_reply: asyncio.Event) -> Any:
        async def call() -> str:
            is_reached.set()
            await may_reply.wait()
            return "reply"

        return await here().model("agent", call, request=request)

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            first, second, may_reply = asyncio.Event(), asyncio.Event(), asyncio.Event()
            alone = asyncio.create_task(ask("x", first, may_reply))
            await first.wait()
            with pytest.raises(InvalidArgument, match=r"run\.scope"):
                await ask("y", second, may_reply)
            may_reply.set()
            assert await alone == "reply"

            first, second = asyncio.Event(), asyncio.Event()  # each replies after the other was called
            with run.scope("a"):
                one = asyncio.create_task(ask("x", first, second))
            with run.scope("b"):
                other = asyncio.create_task(ask("y", second, first))
            assert list(await asyncio.gather(one, other)) == ["reply", "reply"]

    asyncio.run(main())


def test_a_failed_model_call_is_made_again(hf: Holdfast) -> None:
    def fail() -> str:
        raise ConnectionError("no route")

    with interrupted(hf):
        with pytest.raises(ConnectionError):
            here().model_sync("agent", fail, request=1)
        here().model_sync("other", lambda: "fallback", request=1)
    with hf.run("t"):
        assert here().model_sync("agent", lambda: "works now", request=1) == "works now"
        assert here().model_sync("other", fail, request=1) == "fallback"


# -- codecs -------------------------------------------------------------------------------------------------------


class Message:
    def __init__(self, text: str) -> None:
        self.text = text


MESSAGE = Codec("test.Message/1", lambda message: {"text": message.text}, lambda plain: Message(plain["text"]))


def test_a_codec_records_the_classes_of_a_framework(hf: Holdfast) -> None:
    for _ in range(2):
        with interrupted(hf):
            reply = here().model_sync("agent", lambda: Message("hello"), request=1, codec=MESSAGE)
            assert isinstance(reply, Message)
            assert reply.text == "hello"
    [effect] = hf.effects("t")
    assert effect.result == {"text": "hello"}


def test_a_result_of_another_version_of_the_codec_is_not_read(hf: Holdfast) -> None:
    newer = Codec("test.Message/2", lambda message: [message.text], lambda plain: Message(plain[0]))
    with interrupted(hf):
        here().tool_sync("send", lambda: Message("hello"), {}, key="c1", codec=newer)
    with pytest.raises(InvalidArgument, match=r"test\.Message/2.*test\.Message/1"), hf.run("t"):
        here().tool_sync("send", lambda: Message("again"), {}, key="c1", codec=MESSAGE)


# -- tools --------------------------------------------------------------------------------------------------------


def test_a_tool_may_have_any_name(hf: Holdfast) -> None:
    names = ["model", "run.wait", "a/b", "a#b", "50%", "model x", "größe", " "]
    for _ in range(2):
        with interrupted(hf):
            results = [here().tool_sync(name, partial(str, name), {}, key="c1") for name in names]
        assert results == names
    assert [effect.name for effect in hf.effects("t")] == names


def test_an_exception_is_an_outcome_or_leaves_the_call_in_doubt(hf: Holdfast) -> None:
    def fail() -> None:
        raise ValueError("no such item")

    def caught(error: Exception) -> Any:
        return f"failed: {error}"

    for _ in range(2):
        with interrupted(hf):
            assert here().tool_sync("buy", fail, {}, key="c1", caught=caught) == "failed: no such item"
    with hf.run("u", start={}) as run:
        here().tool_sync("buy", fail, {}, key="c1", caught=caught, declare={"buy": {"errors": "doubt"}})
    assert run.status == "waiting"


class ShopError(Exception):
    """An error of the program's own."""


class SoldOut(ShopError):
    def __init__(self, item: str, *, left: int) -> None:
        super().__init__(item)
        self.left = left

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.left} left"


@pytest.mark.parametrize(
    ("error", "after"),
    [
        (ShopError("sold out"), "ShopError('sold out')"),
        (KeyError("ink"), "KeyError('ink')"),
        (OSError(2, "gone"), "FileNotFoundError(2, 'gone')"),
        (ShopError(object), "ShopError(\"<class 'object'>\")"),
        (ShopError(HTTPStatus.NOT_FOUND), "ShopError('404')"),
        (SoldOut("ink", left=0), "RuntimeError('SoldOut: ink: 0 left')"),  # it cannot be made of its text
    ],
)
def test_an_error_that_is_the_outcome_is_raised_each_time(hf: Holdfast, error: Exception, after: str) -> None:
    declare = {"buy": {"errors": "outcome"}}
    called: list[str] = []

    def fail() -> None:
        called.append("buy")
        raise error

    with interrupted(hf):
        with pytest.raises(type(error)) as raised:
            here().tool_sync("buy", fail, {}, key="c1", declare=declare)
        assert raised.value is error
    with hf.run("t"):
        with pytest.raises(Exception, match=r".") as raised_again:
            here().tool_sync("buy", fail, {}, key="c1", declare=declare)
        assert repr(raised_again.value) == after
    assert called == ["buy"]


def test_the_code_of_a_recorded_class_is_not_called(hf: Holdfast) -> None:
    made: list[str] = []

    class Counted(Exception):
        def __new__(cls, *args: object) -> Self:
            made.append(str(args))
            return super().__new__(cls, *args)

    def fail() -> None:
        raise Counted("no paper")

    with interrupted(hf), pytest.raises(Counted):
        here().tool_sync("buy", fail, {}, key="c1", declare={"buy": {"errors": "outcome"}})
    with hf.run("t"), pytest.raises(Counted, match="no paper"):
        here().tool_sync("buy", fail, {}, key="c1", declare={"buy": {"errors": "outcome"}})
    assert made == ["('no paper',)"]


def test_an_error_is_not_the_outcome_if_nothing_was_done_or_the_call_is_retried(hf: Holdfast) -> None:
    called: list[str] = []

    def fail() -> None:
        called.append("buy")
        raise ConnectionError("lost")

    not_done: Any = {"errors": "outcome", "not_done": (ConnectionError,)}
    retried: Any = {"errors": "outcome", "effect": "idempotent", "retry": Retry(2, first=0.001)}
    with hf.run("t", start={}) as run:
        for key, options in (("c1", not_done), ("c2", retried)):
            with pytest.raises(ConnectionError, match="lost"):
                here().tool_sync("buy", fail, {}, key=key, declare={"buy": options})
        run.finish()
    assert [effect.status for effect in hf.effects("t")] == ["not_done", "failed", "failed", "done"]
    assert len(called) == 4


def test_a_class_that_is_not_loaded_is_named_in_the_error(hf: Holdfast) -> None:
    def fail() -> None:
        raise type("Gone", (Exception,), {})("no paper")

    with interrupted(hf), pytest.raises(Exception, match="no paper"):
        here().tool_sync("buy", fail, {}, key="c1", declare={"buy": {"errors": "outcome"}})
    gc.collect()
    with hf.run("t"), pytest.raises(RuntimeError, match="Gone: no paper"):
        here().tool_sync("buy", fail, {}, key="c1", declare={"buy": {"errors": "outcome"}})


def test_a_result_that_looks_like_an_error_is_a_result(hf: Holdfast) -> None:
    results: list[Any] = [{"$error": ["ValueError", "x", []]}, {"$error": None, "result": 1}, {"$error": None}]
    for _ in range(2):
        with interrupted(hf):
            found = [
                here().tool_sync("buy", lambda result=result: result, {}, key=str(number))  # type: ignore[misc]
                for number, result in enumerate(results)
            ]
        assert found == results


def test_declarations_are_checked_when_an_agent_is_made() -> None:
    assert checked(None) == {}
    for declare, problem in [
        ({"buy": {"effect": "none"}}, "declare: buy: effect must be"),
        ({"buy": {"in_doubt": "probe"}}, "declare: buy: .*needs probe"),
        ({"buy": {"errors": "raise"}}, "errors must be"),
        ({"buy": {"colour": "red"}}, "declare: buy: .*colour"),
        ({"buy": "read"}, "declare must be"),
    ]:
        with pytest.raises(InvalidArgument, match=problem):
            checked(declare)  # type: ignore[arg-type]


def test_an_identity_holds_across_runs(hf: Holdfast) -> None:
    bought: list[str] = []
    declare = {"buy": {"identity": ("order",)}}

    def buy() -> str:
        bought.append("A-17")
        return "ok"

    for thread in ("a", "b"):
        with hf.run(thread, start={}):
            given = {"order": "A-17", "thread": thread}
            assert here().tool_sync("buy", buy, given, key=f"{thread}1", declare=declare) == "ok"
    assert bought == ["A-17"]


# -- suspension ---------------------------------------------------------------------------------------------------


def test_a_call_that_waits_lets_its_siblings_end_and_starts_none(hf: Holdfast) -> None:
    ended: list[str] = []
    is_slow_started, is_late_asked = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        is_slow_started.set()
        await is_late_asked.wait()
        ended.append("slow")
        return "slow"

    async def fail() -> str:
        raise ConnectionError("lost")

    async def late() -> str:
        ended.append("late")
        return "late"

    async def start_late() -> Any:
        while "in_doubt" not in [effect.status for effect in hf.effects("t")]:  # noqa: ASYNC110 - a fact of the store
            await asyncio.sleep(0.01)
        is_late_asked.set()
        return await here().tool("late", late, {}, key="c3")

    async def main() -> holdfast.AsyncRun:
        async with hf.aio.run("t", start={}) as run, asyncio.TaskGroup() as group:  # it cancels siblings
            group.create_task(here().tool("slow", slow, {}, key="c1"))
            await is_slow_started.wait()
            group.create_task(here().tool("fail", fail, {}, key="c2"))
            group.create_task(start_late())
        return run

    run = asyncio.run(main())
    assert (run.status, ended) == ("waiting", ["slow"])
    assert [(effect.name, effect.status) for effect in hf.effects("t")] == [("slow", "done"), ("fail", "in_doubt")]
    assert [question.name for question in hf.waiting()] == ["fail"]


def test_all_questions_are_asked_at_once(hf: Holdfast) -> None:
    def fail() -> None:
        raise ConnectionError("lost")

    async def both() -> None:
        both_called = asyncio.Barrier(2)

        async def failing() -> None:
            await both_called.wait()
            fail()

        async with hf.aio.run("t", start={}):
            await asyncio.gather(
                here().tool("pay", failing, {"n": 1}, key="c1"), here().tool("send", failing, {"n": 2}, key="c2")
            )

    asyncio.run(both())
    assert sorted(question.name for question in hf.waiting()) == ["pay", "send"]
    with hf.run("t") as run:
        here().settle_doubts(["pay", "send"])
    assert run.status == "waiting"
    assert sorted(question.name for question in hf.waiting()) == ["pay", "send"]
    for effect in hf.effects("t"):
        hf.settle("t", effect, Happened("yes"))
    with hf.run("t"):
        here().settle_doubts(["pay", "send"])
        assert here().tool_sync("pay", fail, {"n": 1}, key="c1", said=str.upper) == "YES"


def test_waiting_is_public(hf: Holdfast) -> None:
    def fail() -> None:
        raise ConnectionError("lost")

    with hf.run("t", start={}), pytest.raises(Waiting, match="in doubt"):
        here().tool_sync("pay", fail, {}, key="c1")


def test_a_nested_call_that_waits_does_not_wait_for_its_own_tool(hf: Holdfast) -> None:
    def fail() -> None:
        raise ConnectionError("lost")

    async def inner() -> Any:
        return await here().tool("pay", fail, {}, key="c1")

    async def main() -> holdfast.AsyncRun:
        async with hf.aio.run("t", start={}) as run:
            await here().tool("delegate", inner, {}, key="d1", declare={"delegate": {"effect": "idempotent"}})
        return run

    assert asyncio.run(main()).status == "waiting"


def test_a_cancelled_run_makes_no_further_call(hf: Holdfast) -> None:
    called: list[str] = []
    with hf.run("t", start={}) as run:
        here().tool_sync("first", partial(called.append, "first"), {}, key="c1")
        hf.cancel("t", "no longer wanted")
        with pytest.raises(Cancelled, match="no longer wanted"):
            here().tool_sync("second", partial(called.append, "second"), {}, key="c2")
    assert (run.status, called) == ("halted", ["first"])


def test_a_tool_ends_although_its_task_is_cancelled(hf: Holdfast) -> None:
    is_called, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        is_called.set()
        await may_end.wait()
        return "bought"

    async def main() -> None:
        async with hf.aio.run("t", start={}):
            task = asyncio.create_task(here().tool("buy", slow, {}, key="c1"))
            await is_called.wait()
            task.cancel()
            asyncio.get_running_loop().call_soon(may_end.set)
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert [(effect.status, effect.result) for effect in hf.effects("t")] == [("done", "bought")]


# -- calls in two parts -------------------------------------------------------------------------------------------


def test_a_call_in_two_parts(hf: Holdfast) -> None:
    seen: list[str] = []

    async def once() -> None:
        async with hf.aio.run("t", start={}):
            for name in ("model", "tool"):
                begun = await (
                    here().begin_model("agent", request=1, codec=MESSAGE)
                    if name == "model"
                    else here().begin_tool("buy", {"n": 1}, key="c1", codec=MESSAGE)
                )
                if begun.is_recorded:
                    seen.append(f"recorded {begun.recorded.text}")
                else:
                    seen.append((await begun.done(Message(name))).text)
            raise Stop

    for _ in range(2):
        with pytest.raises(Stop):
            asyncio.run(once())
    assert seen == ["model", "tool", "recorded model", "recorded tool"]


def test_a_call_in_two_parts_that_fails_or_is_not_made(hf: Holdfast) -> None:
    with hf.run("t", start={}):
        here().begin_tool_sync("read", {}, key="c1", declare={"read": {"effect": "read"}}).failed_sync(ValueError("no"))
        here().begin_tool_sync("buy", {}, key="c2").not_called_sync()
        here().begin_model_sync("agent", request=1).failed_sync(ValueError("no"))
        here().begin_model_sync("agent", request=1).not_called_sync()
        with pytest.raises(Waiting):
            here().begin_tool_sync("buy", {}, key="c3").failed_sync(ConnectionError("lost"))
    assert [(effect.name, effect.status) for effect in hf.effects("t")] == [
        ("read", "failed"),
        ("buy", "not_done"),
        ("agent", "failed"),
        ("buy", "in_doubt"),
    ]


def test_a_probe_is_called_before_a_call_in_two_parts(hf: Holdfast) -> None:
    declare: Any = {"buy": {"probe": lambda item: Happened(f"found {item}")}}
    with interrupted(hf):
        here().begin_tool_sync("buy", {"item": "ink"}, key="c1", declare=declare)
    with hf.run("t"):
        begun = here().begin_tool_sync("buy", {"item": "ink"}, key="c1", declare=declare, said=str.upper)
        assert (begun.is_recorded, begun.recorded) == (True, "FOUND INK")


def test_a_sync_stream(hf: Holdfast) -> None:
    opened: list[int] = []

    def words() -> Iterator[str]:
        opened.append(1)
        yield from ("to", "be")

    def read() -> list[str]:
        return list(here().stream_sync("poet", words, request=1, final=" ".join, chunks=str.split))

    for _ in range(2):
        with interrupted(hf):
            assert read() == ["to", "be"]
    assert opened == [1]
    assert [effect.result for effect in hf.effects("t")] == ["to be"]


# -- turns --------------------------------------------------------------------------------------------------------


def saved(hf: Holdfast, thread: str = "t") -> list[Any]:
    """The messages of the checkpoints that turns wrote, oldest first."""
    history = [each for each in hf.thread(thread).history() if each.trigger == "save"]
    return [hf.thread(thread).load(each).state["messages"] for each in reversed(history)]


def test_each_turn_but_the_first_closes_a_step(hf: Holdfast) -> None:
    async def turn(agent: str, count: int) -> None:
        seam = here()
        await seam.turn(agent, lambda: {"messages": list(range(count))})
        await seam.model(agent, lambda: count, request=count)

    async def main() -> None:
        async with hf.aio.run("t", start={"messages": []}) as run:
            await turn("outside of the block", 9)
            with turns():
                for count in (1, 2, 3):
                    await turn("main", count)
                    await turn("guardrail", count)  # another agent in the block
                    await here().tool("delegate", lambda: turn("main", 7), {}, key=f"c{count}")  # an agent in a tool
            assert run.step == 3

    asyncio.run(main())
    assert saved(hf) == [[0, 1], [0, 1, 2]]


def test_a_resumed_run_repeats_its_turns_and_no_call(hf: Holdfast) -> None:
    called: list[Any] = []

    def work(turns_made: int) -> None:
        with turns():
            for count in range(1, turns_made + 1):
                here().turn_sync("main", lambda count=count: {"messages": [count]})  # type: ignore[misc]
                here().model_sync("main", partial(called.append, count), request=count)
                here().tool_sync("act", partial(called.append, f"tool {count}"), {}, key="c1")

    for turns_made in (3, 3):
        with suppress(Stop), hf.run("t", start={"messages": []}) as run:
            for _ in run.steps():
                work(turns_made)
                raise Stop
    with hf.run("t") as run:
        for _ in run.steps():
            work(4)
            run.finish()
    assert called == [1, "tool 1", 2, "tool 2", 3, "tool 3", 4, "tool 4"]
    assert saved(hf) == [[2], [3], [4]]
    assert run.status == "completed"


def test_a_turn_waits_for_calls_that_are_under_way(hf: Holdfast) -> None:
    async def main() -> None:
        async with hf.aio.run("t", start={"messages": []}):
            is_called, may_end = asyncio.Event(), asyncio.Event()

            async def judge() -> str:
                is_called.set()
                await may_end.wait()
                return "fine"

            with turns():
                await here().turn("main", dict)
                guardrail = asyncio.create_task(here().model("judge", judge, request=1))
                await is_called.wait()
                turn = asyncio.create_task(here().turn("main", lambda: {"messages": [1]}))
                await asyncio.sleep(0)
                assert not turn.done()
                may_end.set()
                await turn
                assert guardrail.done()

    asyncio.run(main())
    assert saved(hf) == [[1]]


def test_turns_need_a_run_with_a_dict(hf: Holdfast) -> None:
    with pytest.raises(InvalidArgument, match="needs a run"), turns():
        pass
    with pytest.raises(InvalidArgument, match="is a dict"), hf.run("t", start=[]), turns():
        pass


def test_several_questions_are_asked_at_once(hf: Holdfast) -> None:
    def asked() -> Run:
        with hf.run("t", start={}) as run:
            run.finish(here().ask_sync([("a", {"tool": "x"}), ("b", None)]))
        return run

    assert asked().status == "waiting"
    assert sorted(question.name for question in hf.waiting()) == ["a", "b"]
    hf.answer("t", "a", True)
    hf.answer("t", "b", "no")
    assert asked().result == [True, "no"]


def test_each_call_that_needs_approval_has_its_own_answer(hf: Holdfast) -> None:
    """Models that number their calls anew in each reply give one id to several calls."""

    def asked() -> Run:
        with hf.run("t", start={}) as run:
            first = here().refusals_sync([("c1", "pay", {"item": "ink"}), ("c1", "pay", {"item": "gold"})])
            with run.scope("helper"):
                second = here().refusals_sync([("c1", "pay", {"item": "ink"})])
            run.finish([*first, *second])
        return run

    assert asked().status == "waiting"
    questions = {question.name: question.payload["arguments"]["item"] for question in hf.waiting()}
    assert questions == {"approve c1": "ink", "approve c1 (2)": "gold"}
    hf.answer("t", "approve c1", True)
    assert asked().status == "waiting"
    hf.answer("t", "approve c1 (2)", "too expensive")
    assert asked().status == "waiting"
    assert [question.name for question in hf.waiting()] == ["approve c1 (3)"]
    hf.answer("t", "approve c1 (3)", False)
    assert asked().result == [None, "too expensive", "The call was not approved."]


def test_an_id_that_looks_like_a_repeated_one_has_its_own_answer(hf: Holdfast) -> None:
    def asked() -> Run:
        with hf.run("t", start={}) as run:
            run.finish(here().ask_sync([("c1", 1), ("c1", 2), ("c1 (2)", 3)]))
        return run

    assert asked().status == "waiting"
    for question in list(hf.waiting()):
        hf.answer("t", question.name, f"yes to {question.payload}")
    assert asked().result == ["yes to 1", "yes to 2", "yes to 3"]


def test_an_approval_holds_for_one_turn(hf: Holdfast) -> None:
    def asked() -> Run:
        with hf.run("t", start={}) as run, turns():
            seam, answers = here(), []
            for item in ("ink", "gold"):
                seam.turn_sync("clerk", lambda item=item: {"messages": [item]})  # type: ignore[misc]
                seam.model_sync("clerk", lambda: "pay", request=item)
                answers += seam.refusals_sync([("c1", "pay", {"item": item})])
            run.finish(answers)
        return run

    assert asked().status == "waiting"
    hf.answer("t", "approve c1", True)
    assert asked().status == "waiting"
    assert [question.payload["arguments"] for question in hf.waiting()] == [{"item": "gold"}]
    hf.answer("t", "approve c1", "no")
    assert asked().result == [None, "no"]


# -- packages -----------------------------------------------------------------------------------------------------


def test_a_framework_that_is_missing_or_of_another_version() -> None:
    with pytest.raises(ImportError, match=r"no-such-package, which is not installed: pip install 'holdfast\[none\]'"):
        require("no-such-package", "1", "2", "none")
    with pytest.raises(ImportError, match="tested with pytest from 99 to before 100, and"):
        require("pytest", "99", "100", "pytest")


def test_a_stream_that_is_left_records_nothing(hf: Holdfast) -> None:
    with hf.run("t", start={}):
        stream = here().stream_sync("poet", lambda: iter("abc"), request=1, final="".join, chunks=list)
        assert next(stream) == "a"
        stream.close()  # type: ignore[attr-defined]
        whole = here().stream_sync("poet", lambda: iter("abc"), request=1, final="".join, chunks=list)
        assert list(whole) == ["a", "b", "c"]
    assert [effect.result for effect in hf.effects("t")] == ["abc"]


def test_the_seam_names_what_adapters_use() -> None:
    assert {name for name in vars(seams) if not name.startswith("_")} >= {
        "BegunCall",
        "Codec",
        "PLAIN",
        "Seam",
        "current",
    }
