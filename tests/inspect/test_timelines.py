"""The timeline of a thread: order, branches as lanes, calls, crashes, resumes, forks, pages."""

from __future__ import annotations

from random import Random

import pytest

import holdfast
from holdfast import Holdfast, NotFound
from holdfast.inspect import Step, Timeline, find, step_of, timeline
from tests.cases import for_each
from tests.inspect.conftest import reply, started, work
from tests.runs.conftest import World
from tests.selection import every_store


def rewound(hf: Holdfast, name: str = "a") -> None:
    """1 ← 2 ← 3 ← 4 ← 5, then 2 ← 6 ← 7, then 6 ← 8."""
    thread = hf.thread(name)
    for number in range(5):
        thread.save({"n": number})
    thread.rewind("@2")
    thread.save({"n": 10})
    thread.save({"n": 11})
    thread.rewind("@3")
    thread.save({"n": 20}, label="best", tags=["x"])


def drawn(found: Timeline) -> list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    return [(step.checkpoint.seq, step.lane, step.passing, step.joining) for step in found.steps]


def test_branches_are_lanes(world: World) -> None:
    hf = world.open()
    rewound(hf)
    found = timeline(hf, "a")
    assert drawn(found) == [
        (8, 0, (), ()),
        (7, 1, (0,), ()),
        (6, 0, (), (1,)),
        (5, 1, (0,), ()),
        (4, 1, (0,), ()),
        (3, 1, (0,), ()),
        (2, 0, (), (1,)),
        (1, 0, (), ()),
    ]
    assert [step.checkpoint.seq for step in found.steps if step.is_current] == [8, 6, 2, 1]
    assert [step.checkpoint.seq for step in found.steps if step.is_head] == [8]
    assert [(step.checkpoint.label, step.checkpoint.tags) for step in found.steps[:2]] == [("best", ("x",)), (None, ())]
    assert found.count == 8


def test_a_rewind_that_nothing_followed(world: World) -> None:
    hf = world.open()
    rewound(hf)
    hf.thread("a").load("@-1")
    thread = hf.thread("a")
    thread.latest()
    thread.rewind("@1")
    found = timeline(hf, "a")
    assert [step.checkpoint.seq for step in found.steps if step.is_head] == [1]
    assert [step.checkpoint.seq for step in found.steps if step.is_current] == [1]


@pytest.mark.parametrize("limit", [1, 3, 5])
def test_pages_one_after_the_other_are_the_whole(world: World, limit: int) -> None:
    hf = world.open()
    started(world)
    rewound(hf)
    for name in ("a", "shop"):
        whole = timeline(hf, name)
        steps: list[Step] = []
        before: int | None = None
        while True:
            page = timeline(hf, name, before=before, limit=limit)
            steps += page.steps
            before = page.before
            if before is None:
                break
            assert len(page.steps) == limit
        assert tuple(steps) == whole.steps


def test_calls_crashes_and_resumes(world: World) -> None:
    started(world)
    found = timeline(world.open(), "shop")
    assert [step.checkpoint.step for step in found.steps] == [2, 1, 0]
    assert [[(call.kind, call.name, call.status) for call in step.calls] for step in found.steps] == [
        [("model", "reply", "done"), ("read", "look_up", "done")],
        [("model", "reply", "done"), ("read", "look_up", "done")],
        [],
    ]
    assert [(call.kind, call.status) for call in found.open_calls] == [
        ("model", "done"),
        ("read", "done"),
        ("irreversible", "started"),
    ]
    assert found.interrupted
    assert (found.crashed, found.resumed) == (2, 2)
    # Each process that died had asked the model, and the next was given its answer.
    assert [[(each.after, each.answered) for each in step.resumptions] for step in found.steps] == [
        [],
        [("crash", 1)],
        [("crash", 1)],
    ]
    model, read = found.steps[0].calls
    assert [each.fence for step in found.steps for each in step.resumptions] == [3, 2]
    assert model.fence < read.fence  # made by the process that died, and by the one that went on
    assert model.usage is not None
    assert model.usage.total == 13
    assert model.seconds is not None
    assert model.seconds >= 0


def test_a_wait_and_its_answer_is_no_crash(world: World) -> None:
    hf = world.open()
    with hf.run("asks", start={}) as run:
        run.wait("approve", 1)
    hf.answer("asks", "approve", True)
    with hf.run("asks") as run:
        assert run.wait("approve", 1)
        run.finish()
    found = timeline(hf, "asks")
    assert (found.crashed, found.resumed) == (0, 1)
    assert [each.after for step in found.steps for each in step.resumptions] == ["queued"]
    assert not found.interrupted


def test_only_the_newest_claims_are_kept_and_all_are_counted(world: World) -> None:
    with world.dying("often", start={}):
        pass
    for _ in range(30):
        with world.dying("often"):
            pass
    found = timeline(world.open(), "often")
    assert (found.crashed, found.resumed) == (30, 30)
    [step] = found.steps
    assert len(step.resumptions) == 24
    assert found.unmarked == 6


def test_calls_of_several_steps_belong_to_the_checkpoint_that_closed_them(world: World) -> None:
    hf = world.open()
    with hf.run("few", start={"messages": []}, policy=holdfast.EveryN(3)) as run:
        work(run, 6)
        run.finish()
    calls = {step.checkpoint.step: sorted({call.step for call in step.calls}) for step in timeline(hf, "few").steps}
    assert sorted(of for steps in calls.values() for of in steps) == [1, 2, 3, 4, 5, 6]
    assert all(step >= max(of, default=0) for step, of in calls.items())
    assert max(map(len, calls.values())) > 1


def test_calls_of_a_step_that_was_left_open_stay_with_the_branch_that_was_left(world: World) -> None:
    hf = world.open()
    with hf.run("left", start={"messages": []}) as run:
        work(run, 2)  # the second step is not closed
    thread = hf.thread("left")
    thread.latest()
    thread.rewind("@0")
    with hf.run("left") as run:
        run.model(reply, 9)
        run.save()
    calls = [(step.checkpoint.seq, [call.step for call in step.calls]) for step in timeline(hf, "left").steps]
    if calls[1] == (2, [1, 1, 2]):  # the last read was not recorded before the rewind
        calls[1][1].append(2)
    assert calls == [(3, [1]), (2, [1, 1, 2, 2]), (1, [])]


@every_store("each store finds forks by its own query")
def test_forks_are_shown_at_both_ends(world: World) -> None:
    hf = world.open()
    rewound(hf)
    hf.thread("a").fork("b", at="@best")
    assert [(step.checkpoint.seq, step.forks) for step in timeline(hf, "a").steps if step.forks] == [(8, ("b",))]
    fork = timeline(hf, "b")
    assert fork.forked_from == f"a@{hf.thread('a').load('@best').id}"
    assert timeline(hf, "a").forked_from is None


def test_deleted_checkpoints_are_passed_over(world: World) -> None:
    hf = world.open()
    rewound(hf)
    for seq in (4, 6):
        hf.thread("a").delete(
            next(step.checkpoint.id for step in timeline(hf, "a").steps if step.checkpoint.seq == seq)
        )
    found = timeline(hf, "a")
    assert [step.checkpoint.seq for step in found.steps] == [8, 7, 5, 3, 2, 1]
    assert [step.checkpoint.seq for step in found.steps if step.is_current] == [8, 2, 1]


def test_one_step_by_itself(world: World) -> None:
    hf = world.open()
    started(world)
    whole = timeline(hf, "shop")
    for step in whole.steps:
        assert step_of(hf, find(hf, f"shop@{step.checkpoint.id}").checkpoint) == step


def test_no_such_thread(world: World) -> None:
    world.open().thread("shop").save({})
    with pytest.raises(NotFound, match="there is no thread 'shpo'; did you mean 'shop'"):
        timeline(world.open(), "shpo")


@for_each("seed", range(20))
def test_lanes_of_any_history_are_sound(seed: int) -> None:
    """Nothing is drawn over, and every line leads from a checkpoint down to its parent."""
    random = Random(seed)
    with holdfast.open("memory:") as hf:
        thread = hf.thread("a")
        for number in range(40):
            thread.save({"n": number})
            if random.random() < 0.3:
                thread.rewind(random.choice([each.id for each in thread.history()]))
        found = timeline(hf, "a")
        goes_to: dict[int, int] = {}  # by lane, the seq that the line in it leads to
        for step in found.steps:
            seq = step.checkpoint.seq
            assert step.lane not in step.passing
            assert not set(step.joining) & set(step.passing)
            arriving = {lane for lane, to in goes_to.items() if to == seq}
            assert arriving in (set(), {step.lane, *step.joining})
            assert set(step.passing) == {lane for lane, to in goes_to.items() if to != seq}
            for lane in arriving:
                del goes_to[lane]
            if step.parent:
                goes_to[step.lane] = step.parent
        assert not goes_to
