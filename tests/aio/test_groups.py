"""Async runs in several tasks: how the block is left by a group of them, and what is under way when it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AsyncRun, Cancelled, Happened, Holdfast, InvalidArgument, NotDone
from tests.waiting import DEADLINE


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "agent.db", durability="off") as opened:
        yield opened


def status(hf: Holdfast, name: str) -> str:
    [info] = [info for info in hf.threads(prefix=name) if info.name == name]
    return info.status


def questions(hf: Holdfast) -> list[tuple[str, str]]:
    return [(question.thread, question.name) for question in hf.waiting()]


@holdfast.tool
async def charge() -> None:
    raise ConnectionError("cut")


async def in_a_group(*calls: Awaitable[Any]) -> None:
    async def made(call: Awaitable[Any]) -> Any:
        return await call

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(made(call))


def test_a_run_that_waits_inside_a_group_waits(hf: Holdfast) -> None:
    async def main() -> None:
        for _ in range(2):
            async with hf.aio.run("t", start={}) as run:
                await in_a_group(run.tool(charge, {}, key="a"))

    asyncio.run(main())
    assert (status(hf, "t"), questions(hf)) == ("waiting", [("t", "charge")])


def test_a_child_that_waits_inside_a_group_lets_its_parent_wait(hf: Holdfast) -> None:
    async def ask(child: AsyncRun) -> None:
        await child.wait("ok")

    async def family(run: AsyncRun) -> None:
        async with run.child("a", start={}) as child:
            await in_a_group(ask(child))

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            await in_a_group(family(run))

    asyncio.run(main())
    assert (status(hf, "t"), status(hf, "t/a"), questions(hf)) == ("waiting", "waiting", [("t/a", "ok")])


def test_what_fails_beside_a_question_fails_the_run_and_alone_is_heard(hf: Holdfast) -> None:
    waits = asyncio.Event()

    async def ask(run: AsyncRun) -> None:
        try:
            await run.tool(charge, {}, key="a")
        finally:
            waits.set()

    async def fail() -> None:
        try:
            await waits.wait()
        finally:
            raise ValueError("wrong")

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            await in_a_group(ask(run), fail())

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(main())
    assert [type(error) for error in failed.value.exceptions] == [ValueError]
    assert status(hf, "t") == "failed"


def test_a_run_that_is_cancelled_inside_a_group_is_halted(hf: Holdfast) -> None:
    async def one() -> int:
        return 1

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            await run.save()
            await hf.aio.cancel("t", "never mind")
            await in_a_group(run.model(one, key="a"))

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(main())
    assert [type(error) for error in failed.value.exceptions] == [Cancelled]
    assert status(hf, "t") == "halted"


class Post:
    """A tool that takes its time, and a read that fails while it does."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.may_send = asyncio.Event()
        self.sent: list[str] = []
        self.ended: list[str] = []
        self.send = holdfast.tool(probe=self._probe, probe_after=0.01, name="send")(self._send)

    async def _probe(self, to: str) -> object:
        return Happened("sent") if to in self.sent else NotDone()

    async def _send(self, to: str) -> str:
        self.started.set()
        try:
            await self.may_send.wait()
            self.sent.append(to)
            return "sent"
        finally:
            self.ended.append(to)

    async def fail(self) -> None:
        await self.started.wait()
        raise ValueError("wrong")


@pytest.mark.parametrize("together", [asyncio.gather, in_a_group], ids=["gather", "group"])
def test_a_tool_that_acts_may_end_when_another_call_fails(hf: Holdfast, together: Callable[..., Any]) -> None:
    async def main() -> None:
        post = Post()

        async def later() -> None:
            await post.started.wait()
            await asyncio.sleep(0.1)
            post.may_send.set()

        letting = asyncio.create_task(later())
        with pytest.raises((ValueError, ExceptionGroup)):
            async with hf.aio.run("t", start={}) as run:
                await together(run.tool(post.send, {"to": "ann"}, key="1"), post.fail())
        await letting
        assert [(effect.name, effect.status) for effect in hf.effects("t")] == [("send", "done")]
        async with hf.aio.run("t") as run:
            assert await run.tool(post.send, {"to": "ann"}, key="1") == "sent"
        assert post.sent == ["ann"]

    asyncio.run(main())


def test_a_call_in_a_tool_that_acts_is_one_of_its_task(hf: Holdfast) -> None:
    async def main() -> None:
        async def think(what: str) -> str:
            return what

        async with hf.aio.run("t", start={}) as run:

            @holdfast.tool
            async def act() -> Any:
                return await run.model(think, "a")

            await run.model(think, "a")
            assert await run.tool(act) == "a"
            await run.model(think, "a")  # equal calls of several tasks would need keys

    asyncio.run(main())


def test_a_tool_that_is_cancelled_twice_is_cancelled_at_once(hf: Holdfast) -> None:
    async def main() -> None:
        post = Post()
        async with hf.aio.run("t", start={}) as run:
            call = asyncio.create_task(run.tool(post.send, {"to": "ann"}, key="1"))
            await post.started.wait()
            for _ in range(2):
                call.cancel()
                await asyncio.sleep(0.01)
            await asyncio.wait([call], timeout=DEADLINE)
            assert call.cancelled()
            assert post.ended == ["ann"]
            post.may_send.set()
            assert await run.tool(post.send, {"to": "ann"}, key="1") == "sent"
        assert post.sent == ["ann"]

    asyncio.run(main())


def test_a_tool_whose_task_was_cancelled_may_end_while_the_block_is_left(hf: Holdfast) -> None:
    """An agent framework cancels the task of a tool when it is cancelled, and does not wait for it."""

    async def main() -> None:
        post = Post()
        async with hf.aio.run("t", start={}) as run:
            call = asyncio.create_task(run.tool(post.send, {"to": "ann"}, key="1"))
            await post.started.wait()
            call.cancel()
            for _ in range(10):  # the call notices it
                await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.05, post.may_send.set)
        assert post.sent == ["ann"]

    asyncio.run(main())
    assert [effect.status for effect in hf.effects("t")] == ["done"]


def test_nothing_is_under_way_any_more_when_a_run_is_given_back(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gather` leaves the others at work when one fails: a retry would act beside them."""
    monkeypatch.setattr(holdfast.aio.run, "ENDING_SECONDS", 0.05)

    async def main() -> list[str]:
        post = Post()
        with pytest.raises(ValueError, match="wrong"):
            async with hf.aio.run("t", start={}) as run:
                await asyncio.gather(run.tool(post.send, {"to": "ann"}, key="1"), post.fail())
        assert (post.ended, status(hf, "t")) == (["ann"], "failed")
        post.may_send.set()
        await asyncio.sleep(0.6)  # until the answer of the probe counts
        async with hf.aio.run("t") as run:
            assert await run.tool(post.send, {"to": "ann"}, key="1") == "sent"
            await run.finish()
        return post.sent

    assert asyncio.run(main()) == ["ann"]


def test_a_block_that_is_cancelled_while_it_is_left_gives_its_run_back(hf: Holdfast) -> None:
    async def main() -> None:
        started, going_on, let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def stubborn() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                going_on.set()
                await let_go.wait()
            return "done"

        async def block() -> None:
            async with hf.aio.run("t", start={}) as run:
                calling = asyncio.ensure_future(run.model(stubborn, key="1"))
                calls.append(calling)
                await started.wait()

        calls: list[asyncio.Future[Any]] = []
        task = asyncio.ensure_future(block())
        await going_on.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        let_go.set()
        await asyncio.wait([task, *calls])
        assert task.cancelled()

    asyncio.run(main())
    assert status(hf, "t") == "idle"


def test_a_child_beside_one_that_waits_is_given_back_before_its_parent(hf: Holdfast) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def ask(run: AsyncRun) -> None:
            async with run.child("a", start={}) as child:
                await started.wait()
                await child.wait("ok")

        async def work(run: AsyncRun) -> None:
            async with run.child("b", start={}):
                started.set()
                await asyncio.Event().wait()

        async with hf.aio.run("t", start={}) as run:
            await asyncio.gather(ask(run), work(run))
        assert [status(hf, name) for name in ("t", "t/a", "t/b")] == ["waiting", "waiting", "released"]
        assert list(hf.interrupted()) == []  # its parent resumes it

    asyncio.run(main())


def test_a_call_that_begins_while_its_step_is_closed_is_refused(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    was_called = threading.Event()
    store: Any = hf.context.store
    commit = store.commit

    def slow_commit(*args: Any) -> Any:
        assert was_called.wait(DEADLINE)
        return commit(*args)

    @holdfast.tool
    async def act() -> int:
        done.append(1)
        return len(done)

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            monkeypatch.setattr(store, "commit", slow_commit)
            saving = asyncio.ensure_future(run.save())
            await asyncio.sleep(0)
            try:
                with pytest.raises(InvalidArgument, match="being closed"):
                    await run.tool(act, {}, key="a")
            finally:
                was_called.set()
            await saving
            assert await run.tool(act, {}, key="a") == 1

    asyncio.run(main())


def test_a_step_that_could_not_be_closed_goes_on(hf: Holdfast) -> None:
    async def one() -> int:
        return 1

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            run.state["bad"] = object()
            with pytest.raises(holdfast.Unsupported):
                await run.save()
            del run.state["bad"]
            assert await run.model(one) == 1
            await run.finish()

    asyncio.run(main())


# -- calls without keys ---------------------------------------------------------------------------------------------


async def answer(text: str) -> str:
    return text


def without_keys(hf: Holdfast, program: Callable[[AsyncRun], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            await program(run)

    asyncio.run(main())


def test_equal_calls_of_tasks_need_keys_even_if_they_do_not_meet(hf: Holdfast) -> None:
    async def program(run: AsyncRun) -> None:
        is_over = asyncio.Event()

        async def first() -> None:
            await run.model(answer, "the same")
            is_over.set()

        async def second() -> None:
            await is_over.wait()
            await run.model(answer, "the same")

        with pytest.raises(InvalidArgument, match="key="):
            await asyncio.gather(first(), second())

    without_keys(hf, program)


def test_a_call_from_another_loop_is_cancelled_when_the_block_is_left(hf: Holdfast) -> None:
    calling, outcome = threading.Event(), Future[str]()

    async def forever() -> None:
        calling.set()
        await asyncio.Event().wait()

    async def elsewhere(run: AsyncRun) -> str:
        try:
            await run.model(forever)
        except asyncio.CancelledError:
            return "cancelled"
        return "returned"

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            thread = threading.Thread(target=lambda: outcome.set_result(asyncio.run(elsewhere(run))), daemon=True)
            thread.start()
            assert await asyncio.to_thread(calling.wait, DEADLINE)

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert outcome.result(DEADLINE) == "cancelled"
    with hf.run("t", start={}) as run:
        run.finish()


def test_a_call_in_a_loop_that_no_longer_runs_is_not_waited_for(hf: Holdfast) -> None:
    loop = asyncio.new_event_loop()

    async def forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:

            async def elsewhere() -> asyncio.Task[Any]:
                task = asyncio.create_task(run.model(forever))
                await asyncio.sleep(0)
                return task

            def of_own_loop() -> asyncio.Task[Any]:
                return loop.run_until_complete(elsewhere())

            left.append(await asyncio.to_thread(of_own_loop))

    left: list[asyncio.Task[Any]] = []
    try:
        asyncio.run(asyncio.wait_for(main(), DEADLINE))
        with hf.run("t", start={}) as run:
            run.finish()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(left[0])
    finally:
        loop.close()
