"""Defects E1 to E14, which Holdfast must not have: a checkpoint from which an agent cannot really go on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import holdfast
from holdfast import (
    Budget,
    Checkpoint,
    Conflict,
    EveryN,
    GiveUp,
    Halted,
    Holdfast,
    InvalidArgument,
    NotDone,
    Run,
    ToolNotDone,
)
from tests.crash.nursery import Nursery
from tests.parity.defects_scene import (
    child_of,
    damage_content,
    everywhere,
    latest,
    on_disk,
    opened,
    size,
    wait_for_line,
)
from tests.runs.conftest import World
from tests.test_docs import DOCUMENTS, ROOT, blocks, run_block

in_every_world = pytest.mark.parametrize("world", ["memory", "sqlite", "directory"], indirect=True)

CALLS = [{"id": "call_a", "n": 1}, {"id": "call_b", "n": 2}, {"id": "call_c", "n": 3}]


class Boom(Exception):
    """A program that fails."""


@on_disk
def test_e1_the_name_that_the_caller_gave_finds_the_work_again(url: str, nursery: Nursery, tmp_path: Path) -> None:
    child = child_of(nursery, tmp_path, "hold_runs", url=url, threads=["my agent"])
    wait_for_line(child, "holding")
    child.kill()
    with opened(url) as hf, hf.run("my agent", start={"n": 0}) as run:
        assert run.resumed
        assert run.state == {"n": 1}


@everywhere
def test_e2_resuming_gives_the_whole_record(url: str) -> None:
    said: dict[str, Any] = {
        "step": 7,
        "label": "asked",
        "tags": ["a", "b"],
        "metadata": {"budget": {"left": 0.5}, "model": "small"},
        "status": "waiting",
        "reason": "no account",
        "trigger": "after question",
        "agent": "bookkeeper",
        "usage": {"input": 812, "output": 64, "cost": 0.003},
        "resume_hint": "wait for the number",
    }
    with opened(url) as hf:
        made = hf.thread("t").save({"messages": ["hello"]}, **said)
        for found in (latest(hf.thread("t")), hf.thread("t").load(made)):
            require_as_said(found, said)
    if url != "memory:":
        with opened(url) as hf:
            require_as_said(latest(hf.thread("t")), said)
            assert hf.thread("t").save({"messages": []}).step == 8
            with hf.run("t") as run:
                assert [step for step, _ in zip(run.steps(), range(1), strict=False)] == [9]


def require_as_said(found: Checkpoint, said: dict[str, Any]) -> None:
    usage = holdfast.Usage(**said["usage"])
    assert found.state == {"messages": ["hello"]}
    for name, value in {**said, "tags": ("a", "b"), "usage": usage}.items():
        assert getattr(found, name) == value


@everywhere
@pytest.mark.parametrize("dies_at", ["call_a", "call_b", "call_c", None])
def test_e3_no_checkpoint_holds_a_call_without_its_result(hf: Holdfast, dies_at: str | None) -> None:
    done: list[int] = []
    asked: list[int] = []

    def work(n: int) -> str:
        done.append(n)
        return f"did {n}"

    def model(messages: list[Any]) -> dict[str, Any]:
        asked.append(len(messages))
        return {"role": "assistant", "calls": CALLS if len(messages) == 1 else []}

    def agent(dies_at: str | None) -> None:
        with hf.run("t", start={"messages": []}, policy=EveryN(1)) as run:
            if run.fresh:
                run.state["messages"].append({"role": "user", "text": "do it"})
            for _ in run.steps():
                reply = run.model(model, run.state["messages"])
                run.state["messages"].append(reply)
                for call in reply["calls"]:
                    result = run.tool(work, {"n": call["n"]}, key=call["id"])
                    if call["id"] == dies_at:
                        raise Boom
                    run.state["messages"].append({"role": "tool", "id": call["id"], "text": result})
                if not reply["calls"]:
                    run.finish("done")

    if dies_at:
        with pytest.raises(Boom):
            agent(dies_at)
    agent(None)
    assert done == [1, 2, 3]
    assert asked == [1, 5]
    for checkpoint in hf.thread("t").history():
        messages = hf.thread("t").load(checkpoint).state["messages"]
        called = [call["id"] for message in messages for call in message.get("calls", ())]
        assert [message["id"] for message in messages if message["role"] == "tool"] == called
        assert sum(message["role"] == "user" for message in messages) <= 1


@in_every_world
def test_e4_pending_failed_and_done_are_different_things(world: World) -> None:
    def refuse() -> None:
        raise ToolNotDone

    @holdfast.tool(effect="read")
    def fail() -> None:
        raise Boom

    with world.dying("t", start={}) as run:
        run.model(lambda: "fine", key="one")
        for tool, key in ((refuse, "two"), (fail, "three")):
            with pytest.raises((ToolNotDone, Boom)):
                run.tool(tool, {}, key=key)

        def begin() -> None:
            world.kill(run)

        run.tool(begin, {}, key="four")
    assert [(effect.number, effect.key, effect.status) for effect in world.open().effects("t")] == [
        (1, "model/one", "done"),
        (2, "refuse/two", "not_done"),
        (3, "fail/three", "failed"),
        (4, "begin/four", "begun"),
    ]


@on_disk
def test_e5_that_a_call_began_is_stored_before_it_acts(url: str, nursery: Nursery, tmp_path: Path) -> None:
    book = tmp_path / "book"
    child = child_of(nursery, tmp_path, "act_once", url=url, book=book)
    wait_for_line(child, "acting")
    with opened(url) as hf:
        [begun] = hf.effects("t")
        assert (begun.name, begun.status, begun.arguments) == ("pay", "begun", {"amount": 7})
    child.kill()

    def pay(amount: int) -> str:
        pytest.fail(f"{amount} is paid twice")

    with opened(url) as hf:
        with hf.run("t") as run:
            for _ in run.steps():
                run.tool(pay, {"amount": 7}, key="p")
        assert run.status == "waiting"
        [question] = hf.waiting()
        hf.settle("t", question.effect, holdfast.Happened("paid"))
        with hf.run("t") as run:
            for _ in run.steps():
                run.finish(run.tool(pay, {"amount": 7}, key="p"))
        assert run.result == "paid"
        assert [effect.status for effect in hf.effects("t") if effect.name == "pay"] == ["done"]
    assert book.read_text() == "7\n"


@everywhere
def test_e6_a_state_is_whatever_the_agent_has(hf: Holdfast) -> None:
    state = {
        "messages": [
            {"role": "developer", "name": "ops", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "reasoning": "hm", "calls": [{"id": "call_1", "args": {"at": (1, 2.5), 3: None}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": b"\x89PNG\0", "is_error": False},
        ],
        "scratch": {"seen": {1, 2}, "none": None, "big": 2**200},
    }
    before = copy.deepcopy(state)
    hf.thread("t").save(state)
    found = latest(hf.thread("t")).state
    assert found == before
    assert type(found["messages"][1]["calls"][0]["args"]["at"]) is tuple
    assert type(found["messages"][2]["content"]) is bytes


@everywhere
def test_e7_a_status_is_beside_the_state_and_follows_rules(hf: Holdfast) -> None:
    with hf.run("t", start={"n": 1}) as run:
        run.wait("approve")
    before = list(hf.thread("t").history())
    hf.cancel("t", "not needed")
    assert [info.status for info in hf.threads()] == ["halted"]
    assert list(hf.thread("t").history()) == before
    with hf.run("t") as run:
        run.finish("done")
    with pytest.raises(Conflict):
        hf.cancel("t", "too late")
    with pytest.raises(InvalidArgument):
        hf.thread("u").save({}, status="almost")  # type: ignore[arg-type] # the point
    assert hf.thread("u").latest() is None


@on_disk
def test_e8_what_can_be_gone_on_with_is_asked_of_the_store(url: str, nursery: Nursery, tmp_path: Path) -> None:
    child = child_of(nursery, tmp_path, "hold_runs", url=url, threads=["cut off"])
    wait_for_line(child, "holding")
    child.kill()
    with opened(url) as hf:
        with hf.run("completed", start={"n": 1}) as run:
            run.finish("result")
        hf.thread("only saved").save({"n": 1})
        hf.thread("damaged").save({"text": "a text that is damaged " * 20})
        assert [found.thread for found in hf.interrupted()] == ["cut off"]
        assert [info.name for info in hf.threads(status="completed")] == ["completed"]
        with hf.run("completed") as run:
            assert list(run.steps()) == []
        assert run.result == "result"
    damage_content(url, 1, "damaged")
    with opened(url) as hf, pytest.raises(holdfast.Damaged):
        hf.run("damaged").__enter__()


@everywhere
def test_e9_a_policy_saves_once_a_step_is_checked_and_can_be_combined(hf: Holdfast) -> None:
    with hf.run("t", start={}, policy=EveryN(2)) as run:
        for step in run.steps():
            run.model(lambda: "one")
            run.model(lambda: "two")
            run.tool(work, {})
            if step == 6:
                break
    assert [checkpoint.step for checkpoint in hf.thread("t").history()] == [4, 2, 0]
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(InvalidArgument):
            EveryN(wrong)  # type: ignore[arg-type] # the point
    assert [event for event in ("model", "tool", "step") if EveryN(2).should_save(event, 2)] == ["step"]
    both = EveryN(3) | holdfast.AfterToolCall()
    assert both.should_save("tool", 1)
    assert both.should_save("step", 3)
    assert not both.should_save("step", 2)


def work() -> str:
    return "done"


@on_disk
def test_e10_equal_messages_cost_nothing_wherever_they_come_from(url: str) -> None:
    source = Random(1)
    long = source.randbytes(100_000).hex()
    messages = [{"role": "user", "content": source.randbytes(300).hex(), "id": n} for n in range(300)]
    with opened(url) as hf:
        hf.thread("t").save({"messages": [*messages, {"id": "old", "content": long}]})
    before = size(url)
    compacted = [
        {"role": "system", "content": "a summary"},
        *copy.deepcopy(messages[100:]),
        {"id": "new", "content": long},
    ]
    with opened(url) as hf:
        hf.thread("t").save({"messages": compacted})
        assert latest(hf.thread("t")).state == {"messages": compacted}
    assert size(url) - before < 20_000  # of 320,000 that were given


@in_every_world
def test_e11_results_are_found_by_their_keys(world: World) -> None:
    with world.dying("t", start={}) as run:
        assert [info.status for info in world.open().threads()] == ["running"]
        results = [run.model(lambda: "first", key="a"), run.model(lambda: "second", key="b")]
    called: list[str] = []

    def agent(run: Run) -> None:
        for _ in run.steps():
            found = {key: run.model(called_for(key), key=key) for key in ("a", "inserted", "b", "c")}
            run.finish(found)

    def called_for(key: str) -> Callable[[], str]:
        def model() -> str:
            called.append(key)
            return f"new {key}"

        return model

    for _ in range(2):
        with world.running("t", ends="completed") as run:
            agent(run)
        assert run.result == {"a": results[0], "inserted": "new inserted", "b": results[1], "c": "new c"}
    assert called == ["inserted", "c"]


@in_every_world
def test_e12_a_resumed_run_is_stored_and_held_to_its_limits_as_before(world: World) -> None:
    def agent(run: Run, until: int) -> None:
        for step in run.steps():
            run.model(work)
            if step == until:
                break

    with world.dying("t", start={}, policy=EveryN(1)) as run:
        agent(run, 3)
    with world.running("t", policy=EveryN(1)) as run:
        agent(run, 6)
    with world.failing("t", Halted, policy=EveryN(1), guards=[Budget(steps=8)]) as run:
        agent(run, 20)
    listed = list(world.open().thread("t").history())
    assert [checkpoint.step for checkpoint in listed] == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert len({checkpoint.id for checkpoint in listed}) == 9
    assert run.status == "halted"


@in_every_world
@pytest.mark.parametrize("decided", [NotDone(), GiveUp()], ids=["again", "given up"])
def test_e13_what_somebody_decides_is_done_and_nothing_else(world: World, decided: Any) -> None:
    called: list[int] = []

    def pay(amount: int) -> str:
        called.append(amount)
        if len(called) == 1:
            raise Boom("retry success ok")  # words in a message mean nothing
        return "paid"

    hf = world.open()
    for _ in range(2):
        with world.running("t", hf, ends="waiting", start={}) as run:
            run.tool(pay, {"amount": 7}, key="p")
        assert called == [7]
    [question] = hf.waiting()
    hf.settle("t", question.effect, decided)
    with world.running("t", hf) as run:
        result = run.tool(pay, {"amount": 7}, key="p")
    again = isinstance(decided, NotDone)
    assert called == ([7, 7] if again else [7])
    assert (result == "paid") is again
    assert hf.effects("t")[-1].status == ("done" if again else "given_up")


def test_e14_what_the_documents_show_is_run() -> None:
    assert set(DOCUMENTS) >= {ROOT / "README.md", *(ROOT / "docs").rglob("*.md")}
    shown = [source for path in DOCUMENTS for _, source in blocks(path.read_text("utf-8"))]
    run = [source for source in shown if not source.startswith("# not run: ")]
    assert len(run) > 80
    with pytest.raises(TypeError):
        run_block("import holdfast\nholdfast.Retention(weeks=3)\n", {}, "a document")
    with pytest.raises(AssertionError):
        run_block("import holdfast\nholdfast.Retention(keep_last=3).keep_last  # -> 4\n", {}, "a document")
