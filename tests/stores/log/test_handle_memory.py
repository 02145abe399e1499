"""The memory of a handle on a directory does not grow with the number of saves."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import holdfast


def test_a_thousand_saves_leave_a_handle_as_large_as_it_was(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/s", durability="off") as hf:
        thread = hf.thread("t")
        for n in range(200):
            thread.save({"n": n})
        tracemalloc.start()
        try:
            for n in range(1_000):
                thread.save({"n": n})
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert grown < 1_000 * 100
