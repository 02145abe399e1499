"""The memory of a handle on a directory hardly grows with the number of saves."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import saved


def grown(step: Callable[[int], object]) -> float:
    """The bytes that are kept for each of a thousand steps."""
    for n in range(200):
        step(n)
    tracemalloc.start()
    try:
        for n in range(1_000):
            step(n)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 1_000
    finally:
        tracemalloc.stop()


def test_a_thousand_saves_leave_a_handle_as_large_as_it_was(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/s", durability="off") as hf:
        thread = hf.thread("t")
        assert grown(lambda n: thread.save({"n": n})) < 100


def test_threads_that_were_dropped_are_forgotten(store: DirectoryStore) -> None:
    # The caches of encoded names are full after 1,024 of them.
    for n in range(1_024):
        store.head(f"missing {n}")
    assert grown(lambda n: store.drop(saved(store, f"{n % 100}", "x").number)) < 100


def test_a_handle_that_reads_what_another_saves_stays_as_large_as_it_was(tmp_path: Path) -> None:
    url = f"dir:{tmp_path}/s"
    with holdfast.open(url, durability="off") as hf, holdfast.open(url, durability="off") as other:

        def step(n: int) -> None:
            hf.thread("t").save({"n": n})
            other.thread("t").latest()

        assert grown(step) < 2 * 100


def test_a_thread_that_is_opened_takes_little_for_each_checkpoint(tmp_path: Path) -> None:
    url = f"dir:{tmp_path}/s"
    with holdfast.open(url, durability="off") as hf:
        for n in range(1_000):
            hf.thread("t").save({"n": n}, step=n)
    with holdfast.open(url, durability="off") as hf:
        hf.thread("empty").latest()
        tracemalloc.start()
        try:
            hf.thread("t").latest()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 1_000 * 100
        finally:
            tracemalloc.stop()
