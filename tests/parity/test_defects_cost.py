"""Defects H1 to H9, which Holdfast must not have: what keeping a history costs. Sizes do not depend on luck."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import holdfast
from holdfast import Retention, Thread
from tests.parity.defects_scene import (
    counted_reads,
    damage_content,
    database,
    everywhere,
    files,
    fill,
    latest,
    on_disk,
    opened,
    seqs,
    size,
)

STEPS = 200
WORDS = [word.strip('"().,:') for word in (holdfast.open.__doc__ or "").split()]


def conversation(steps: int) -> list[dict[str, Any]]:
    """Two messages of ordinary text for each step."""
    source = Random(3)
    return [
        {"role": role, "content": " ".join(source.choices(WORDS, k=90)), "id": f"{source.getrandbits(64):x}"}
        for _ in range(steps)
        for role in ("assistant", "tool")
    ]


def talk(thread: Thread, steps: int) -> int:
    """Save after each step; how long the last state is as JSON."""
    messages = conversation(steps)
    for n in range(1, steps + 1):
        thread.save({"messages": messages[: 2 * n]})
    return len(json.dumps(messages))


@on_disk
def test_h1_a_history_takes_space_by_what_changed(url: str) -> None:
    with opened(url) as hf:
        final = talk(hf.thread("t"), STEPS)
        assert hf.thread("t").count() == STEPS
    copies = final * STEPS // 2  # what a full copy each time takes
    assert size(url) < 2.5 * final < copies / 30
    before = size(url)
    with opened(url) as hf:
        state = latest(hf.thread("t")).state
        for _ in range(10):
            state["messages"].append({"role": "user", "content": "one more"})
            hf.thread("t").save(state, expect=holdfast.ANY)
    assert size(url) - before < 40_000


@on_disk
def test_h2_what_is_stored_is_compact(url: str) -> None:
    with opened(url) as hf:
        final = talk(hf.thread("t"), STEPS)
        hf.optimize()
    if database(url) is not None:
        assert size(url) < 0.75 * final  # compressed
    else:
        assert size(url) < 2.0 * final  # text, to be read and compared by anybody: one line a record, none indented
        assert all(b"\n " not in path.read_bytes() for path in files(url))


@on_disk
def test_h3_a_listing_reads_no_state(url: str) -> None:
    with opened(url) as hf:
        for n in range(1, 6):
            hf.thread("t").save({"text": [f"state {n} " * 200, n]}, label=f"label {n}")
    for n in range(1, 6):
        damage_content(url, n)
    with opened(url) as hf:
        thread = hf.thread("t")
        assert seqs(thread) == [5, 4, 3, 2, 1]
        assert [info.seq for info in hf.threads()] == [5]
        assert thread.count() == 5
        found = thread.find(label="label 3")
        assert found is not None
        assert found.seq == 3
        assert len(thread.prune(Retention(keep_last=2, keep_labelled=False), dry_run=True).removed) == 3
        with pytest.raises(holdfast.Damaged):
            thread.latest()


def read_with(url: str, others: int, look: Callable[[Thread], object]) -> int:
    """How many bytes looking at a thread reads that has so many beside it."""
    with opened(url) as hf:
        fill(hf.thread("t"), 3)
        for n in range(others):
            hf.thread(f"other {n}").save({"text": Random(n).randbytes(3_000).hex()})
    with opened(url) as hf:
        with counted_reads() as read:
            look(hf.thread("t"))
        return read[0]


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_h4_other_threads_cost_nothing(kind: str, tmp_path: Path) -> None:
    few, many = (read_with(url_of(kind, tmp_path, n), n, lambda thread: thread.latest()) for n in (2, 150))
    assert many < 2 * few + 40_000  # of 900,000 that the others have


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_h5_a_checkpoint_is_found_by_its_id_without_asking_around(kind: str, tmp_path: Path) -> None:
    def look(thread: Thread) -> None:
        [*_, first] = thread.history()
        assert thread.load(first.id).seq == thread.load(first.id[-8:]).seq == 1

    few, many = (read_with(url_of(kind, tmp_path, n), n, look) for n in (2, 150))
    assert many < 2 * few + 40_000


def url_of(kind: str, folder: Path, n: int) -> str:
    return str(folder / f"{n}.db") if kind == "sqlite" else f"dir:{folder}/{n}"


@on_disk
def test_h6_a_save_does_not_read_what_was_saved(url: str) -> None:
    source = Random(5)
    state: dict[str, Any] = {"messages": [source.randbytes(1_000).hex() for _ in range(1_000)], "n": 0}
    with opened(url) as hf:
        thread = hf.thread("t")
        thread.save(state)
        with counted_reads() as read:
            for n in range(1, 11):
                state["messages"].append(f"message {n}")
                thread.save(state)
        assert read[0] < 400_000  # of ten times 2,000,000


@on_disk
def test_h7_an_image_is_stored_once(url: str) -> None:
    image = base64.b64encode(Random(9).randbytes(600_000)).decode()
    with opened(url) as hf:
        for name in ("t", "u"):
            messages: list[Any] = [{"role": "user", "content": [{"type": "image", "data": image}]}]
            for n in range(10):
                messages.append({"role": "assistant", "content": f"turn {n}"})
                hf.thread(name).save({"messages": messages})
            hf.thread(name).save({"messages": [*messages, {"role": "user", "again": image}]})
        assert latest(hf.thread("u")).state["messages"][-1] == {"role": "user", "again": image}
    assert size(url) < 1.3 * len(image)


def test_h8_a_store_in_memory_shares_what_is_the_same() -> None:
    tracemalloc.start()
    try:
        with opened("memory:") as hf:
            before, _ = tracemalloc.get_traced_memory()
            final = talk(hf.thread("t"), STEPS)
            after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 8 * final < final * STEPS // 10


@on_disk
def test_h9_what_was_deleted_gives_its_space_back(url: str) -> None:
    source = Random(11)
    with opened(url) as hf:
        for n in range(1, 11):
            hf.thread("t").save({"n": n, "data": source.randbytes(200_000), "list": [source.randbytes(500)] * 20})
    full = size(url)
    assert full > 2_000_000
    with opened(url) as hf:
        hf.thread("t").prune(Retention(keep_last=1))
        hf.optimize()
        assert latest(hf.thread("t")).state["n"] == 10
    assert size(url) < full / 5


@everywhere
def test_h9_what_was_dropped_can_be_used_again(url: str) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 3)
        hf.thread("t").drop()
        hf.optimize()
        assert list(hf.threads()) == []
        assert fill(hf.thread("t"), 2)[-1].seq == 2
        assert hf.verify().ok
