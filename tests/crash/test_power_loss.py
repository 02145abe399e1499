"""The power is cut after everything that a store does to its files: nothing acknowledged is lost at "full".

The crash lab's worker is recorded once; the disk is simulated (`power_disk`). `make test` tries a share of the cuts,
HOLDFAST_LAB=full all of them, with several draws where chance decides. A failure keeps its recording, and says how to
cut it again at the same point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import Literal

import pytest

from tests.covers import covers
from tests.crash import ledger
from tests.crash.lab import FULL
from tests.crash.power_disk import Event, Said, Synced
from tests.crash.power_lab import RECORD, Cut, PowerLab, chosen, cuts, opened_power_lab, repeat_by
from tests.crash.power_recording import Recording
from tests.crash.workload import Kind, Scene, Task
from tests.selection import in_full

THOROUGH = "tests.crash.judge:judge"
QUICK = "tests.crash.power_judge:judge_quickly"
LENIENT = "tests.crash.power_judge:judge_leniently"
EACH_LENIENT = "tests.crash.power_judge:judge_each_leniently"
EACH_READABLE = "tests.crash.power_judge:judge_each_that_can_be_read"
AGAIN = "tests.crash.power_judge:judge_again"
THOROUGH_EVERY = 4
SHARE: dict[tuple[Kind, Scene], int] = {("sqlite", "verbs"): 9, ("directory", "verbs"): 11}


@pytest.fixture(scope="module")
def lab() -> Iterator[PowerLab]:
    with opened_power_lab() as lab:
        yield lab


@covers("A3", "A9")
@pytest.mark.parametrize(("kind", "scene"), SHARE)
def test_nothing_acknowledged_is_lost(lab: PowerLab, kind: Kind, scene: Scene) -> None:
    recording = lab.record(kind, Task("", scene))
    tried: Counter[str] = Counter()
    for number, cut in enumerate(chosen(recording, None if FULL else SHARE[kind, scene])):
        judge(lab, kind, scene, recording, cut, QUICK if number % THOROUGH_EVERY else THOROUGH)
        tried[f"{cut.model} ({scene})"] += 1
    ledger.note("power loss", kind, **tried)
    assert tried


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_the_power_is_cut_again_while_a_store_is_opened(lab: PowerLab, kind: Kind) -> None:
    tried = 0
    for recording in openings(lab, kind):
        said_before = sum(1 for _ in takewhile(lambda event: isinstance(event, Said), recording.events))
        for cut in chosen(recording, 20 if FULL else 4):
            if cut.after >= said_before:
                judge(lab, kind, "verbs", recording, cut, AGAIN)
                tried += 1
    ledger.note("power loss, again at the next opening", kind, cuts=tried)
    assert tried


def openings(lab: PowerLab, kind: Kind) -> Iterator[Recording]:
    """What is done to open stores that were left by a power cut."""
    first = lab.record(kind, Task(""))
    if RECORD:
        yield first
        return
    # What was torn is what there is most to do about.
    torn = [cut for cut in chosen(first, 200 if FULL else 40) if cut.model in ("torn", "zeros")]
    for cut in torn[:: max(1, len(torn) // (20 if FULL else 1))]:
        yield lab.record_again(kind, "verbs", cut)


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_normal_leaves_a_store_as_it_was_some_moments_earlier(lab: PowerLab, kind: Kind) -> None:
    """A directory: each thread of it. Where sectors came in any order, several saves may be torn: that is damage."""
    recording = lab.record(kind, Task("", durability="normal"))
    tried: Counter[str] = Counter()
    for cut in chosen(recording, 400 if FULL else 8):
        lenient = LENIENT if kind == "sqlite" else EACH_READABLE if cut.model == "torn" else EACH_LENIENT
        judge(lab, kind, "verbs", recording, cut, lenient)
        tried[cut.model] += 1
    ledger.note('power loss at "normal"', kind, **tried)
    assert tried


@pytest.mark.parametrize("durability", ["normal", "off"])
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_weaker_levels_lose_what_was_acknowledged(
    lab: PowerLab, kind: Kind, durability: Literal["normal", "off"]
) -> None:
    """Not that they should: that the lab notices what is lost."""
    lost, tried = losses(lab, kind, lab.record(kind, Task("", durability=durability)))
    ledger.note(f'expected loss at "{durability}"', kind, lost=lost, of=tried)
    assert lost, f"nothing of {tried} was lost"


@pytest.mark.parametrize(
    "kind",
    [
        "sqlite",
        pytest.param("directory", marks=in_full("SQLite shows it")),
    ],
)
def test_without_its_syncs_the_strongest_level_loses_too(lab: PowerLab, kind: Kind) -> None:
    recording = lab.record(kind, Task(""))
    unsynced: list[Event] = [event for event in recording.events if not isinstance(event, Synced)]
    lost, tried = losses(lab, kind, Recording(recording.before, unsynced))
    assert lost == tried


def losses(lab: PowerLab, kind: Kind, recording: Recording) -> tuple[int, int]:
    """How many cuts lost what was acknowledged, and of how many."""
    points = (after for after, event in enumerate(recording.events, 1) if is_acknowledgement(event))
    found = list(cuts(recording, 1, {(after, "dropped", 0) for after in points}))
    found = found if FULL else found[len(found) // 2 :: max(1, len(found) // 6)]
    lost = 0
    for cut in found:
        try:
            lab.judge(kind, "verbs", cut, QUICK)
        except AssertionError:
            lost += 1
    return lost, len(found)


def is_acknowledgement(event: Event) -> bool:
    return isinstance(event, Said) and event.text.startswith(("done", "called"))


def judge(lab: PowerLab, kind: Kind, scene: Scene, recording: Recording, cut: Cut, judge: str) -> None:
    try:
        lab.judge(kind, scene, cut, judge)
    except AssertionError as failure:
        repeat_by(recording, cut, failure)
