"""A save to several threads that is killed at any write: all of them have it, or none.

`make test` takes a share of the system calls, HOLDFAST_LAB=full all of them; HOLDFAST_LAB_POINT=pwrite64/12 the twelfth
of that name alone.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.crash import ledger
from tests.crash.lab import FULL, POINT, repeated_by, spread
from tests.crash.nursery import Nursery
from tests.crash.together_child import BIG
from tests.crash.tracing import WRITING, Fault, Traced, trace
from tests.memory import folder_in_memory

SHARE = 4  # of the calls of each name
BEFORE: dict[str, Any] = {"session": {"events": [1]}, "user": {"n": 1}}
AFTER: dict[str, Any] = {"session": {"events": [1, 2]}, "user": {"n": 2, "big": BIG}, "app": {"n": 2}}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_in_memory() as folder:
        template = folder / "template"
        template.mkdir()
        with holdfast.open(template / "store") as hf:
            for name, state in BEFORE.items():
                hf.thread(name).save(state)
        yield folder


def attempt(nursery: Nursery, folder: Path, fault: Fault | None) -> tuple[Traced, bool]:
    """Let a save meet a fault; return what happened, and whether the threads have the save."""
    world = Path(tempfile.mkdtemp(dir=folder))
    shutil.copytree(folder / "template", world, dirs_exist_ok=True)
    task = world.with_suffix(".task")
    task.write_text(str(world / "store"))
    traced = trace(nursery, "tests.crash.together_child:save", task, WRITING, fault)
    with holdfast.open(world / "store") as hf:
        heads = {info.name: hf.thread(info.name).latest() for info in hf.threads()}
        found = {name: None if head is None else head.state for name, head in heads.items()}
        assert hf.verify().problems == ()
        assert found in (BEFORE, AFTER)
        assert found == AFTER or traced.lines != ["saved"]
        hf.thread("app").save({"n": 3})
    return traced, found == AFTER


def test_killed_at_every_write(nursery: Nursery, folder: Path) -> None:
    traced, is_saved = attempt(nursery, folder, None)
    assert (traced.lines, is_saved) == (["saved"], True)
    killed: Counter[str] = Counter()
    outcomes: Counter[bool] = Counter()
    for name, count in Counter(call.name for call in traced.calls).items():
        for number in range(1, count + 1) if FULL or POINT else spread(range(1, count + 1), SHARE):
            if POINT in ("", f"{name}/{number}"):
                with repeated_by(f"{name}/{number}"):
                    traced, is_saved = attempt(nursery, folder, Fault(name, str(number), "signal=KILL"))
                killed[name] += traced.ended == "killed"
                outcomes[is_saved] += traced.ended == "killed"
    ledger.note("kill while saving together", "sqlite", **killed)
    assert POINT or (killed.total() > 3 and outcomes[False]), killed
