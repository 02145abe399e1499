"""Lanes where checkpoints stand under others than the one before them: labels given later, trees of frameworks."""

from __future__ import annotations

from random import Random

import holdfast
from holdfast import Holdfast
from holdfast.inspect import Step, Timeline, step_of, timeline
from holdfast.threads.branches import Placer, named
from holdfast.threads.metadata import Details, decode
from tests.cases import for_each
from tests.runs.conftest import World


def check(found: Timeline) -> None:
    """Nothing is drawn over, and every line leads from a checkpoint down to its parent."""
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
    current = {found.head}
    for step in found.steps:
        if step.checkpoint.seq in current:
            current.add(step.parent)
        assert step.is_current == (step.checkpoint.seq in current)


def pages(hf: Holdfast, thread: str, limit: int) -> list[Step]:
    steps: list[Step] = []
    before: int | None = None
    while True:
        page = timeline(hf, thread, before=before, limit=limit)
        steps += page.steps
        before = page.before
        if before is None:
            return steps


def test_a_label_on_an_older_checkpoint_stands_beside_the_head(world: World) -> None:
    hf = world.open()
    thread = hf.thread("a")
    for number in range(4):
        thread.save({"n": number})
    named(hf.context, "a", "@2", label="here")  # seq 5, under 2
    hf.thread("a").save({"n": 9})  # seq 6, under 4
    found = timeline(hf, "a")
    check(found)
    assert [(step.checkpoint.seq, step.parent, step.lane) for step in found.steps] == [
        (6, 4, 0),
        (5, 2, 1),
        (4, 3, 0),
        (3, 2, 0),
        (2, 1, 0),
        (1, 0, 0),
    ]
    assert [step.checkpoint.seq for step in found.steps if step.is_current] == [6, 4, 3, 2, 1]


@for_each("seed", range(12))
def test_any_tree_of_a_framework(seed: int) -> None:
    """What is put under any checkpoint begins no branch: its parent says where it belongs."""
    random = Random(seed)
    with holdfast.open("memory:") as hf:
        hf.thread("a").save({"n": 0})
        context = hf.context
        for number in range(1, 40):
            placer = Placer(context, "a")
            head = placer.head()
            assert head is not None
            at = head.thread.position
            last = at.last if random.random() < 0.6 else random.randint(1, at.last)
            under = placer.row(at.thread, last)
            assert under is not None
            if random.random() < 0.2:
                named(context, "a", hf.thread("a").load(f"@{under.step}"), label=f"l{number}")
                continue
            details = Details(number, None, decode(under))
            placer.place({"n": number}, details, expect=at, under=under, base=placer.base(at.thread, under))
        found = timeline(hf, "a")
        check(found)
        for limit in (1, 7):
            assert tuple(pages(hf, "a", limit)) == found.steps
        for step in found.steps[::5]:
            assert step_of(hf, step.checkpoint) == step
