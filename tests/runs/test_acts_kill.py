"""The same act once, with a kill at every write of every store, and in a race of processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.crash.nursery import Nursery
from tests.runs.act_agent import Layer, Task
from tests.runs.sweep_faults import can_hook_disk
from tests.selection import IN_FULL, every_store
from tests.stores.postgres.server import reused_address_at

pytestmark = every_store("each store writes a claim and its intent in its own way")

LAYERS: list[tuple[Layer, str]] = [
    ("disk", "sqlite"),
    ("files", "directory"),
    *(("verbs", store) for store in ("sqlite", "directory", "postgres")),
]
# One point in so many, unless all are asked for.
SHARE: dict[Layer, int] = {"disk": 17, "files": 11, "verbs": 5}
MOST_POINTS = 5_000


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: a kill leaves what was written, synced or not, and syncs take long."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-acts-", dir=memory) as name:
        yield Path(name)


def task_in(folder: Path, layer: Layer, store: str, **fields: object) -> Path:
    urls = {"sqlite": str(folder / "agent.db"), "directory": f"dir:{folder / 'agent'}"}
    url = urls.get(store) or reused_address_at(folder.parent)
    namespace = folder.name if store == "postgres" else "default"
    number = len(list(folder.glob("task-*")))
    path = folder / f"task-{number}.json"
    path.write_bytes(msgspec.json.encode(Task(str(folder), url, namespace, layer, **fields)))  # type: ignore[arg-type]
    return path


def line_of(nursery: Nursery, program: str, task: Path) -> str:
    child = nursery.start(f"tests.runs.act_agent:{program}", task)
    try:
        child.wait_for_end()
    finally:
        child.close()
    assert child.failure is None, child.failure
    [line] = child.lines
    return line


@pytest.mark.parametrize("in_doubt", ["ask", "rerun"])
@pytest.mark.parametrize(("layer", "store"), LAYERS)
def test_killed_at_every_write(nursery: Nursery, folder: Path, layer: Layer, store: str, in_doubt: str) -> None:
    if layer == "disk" and not can_hook_disk():
        pytest.skip("the SQLite of this interpreter cannot be hooked; the other layer is swept")
    places: Counter[str] = Counter()
    threads = ("a", "b")
    for at in range(1, MOST_POINTS, 1 if IN_FULL else SHARE[layer]):
        place = folder / f"at-{at}"
        place.mkdir()
        line = line_of(nursery, "work", task_in(place, layer, store, at=at, threads=threads, in_doubt=in_doubt))
        if line == "ended":
            break
        task = task_in(place, layer, store, threads=threads, in_doubt=in_doubt)
        assert line_of(nursery, "finish", task) == "finished", line
        places[line.removeprefix("killed ")] += 1
        shutil.rmtree(place)
    else:
        pytest.fail(f"the job has more than {MOST_POINTS} points")
    assert len(places) >= 3, places


@pytest.mark.parametrize("store", ["sqlite", "directory", "postgres"])
def test_processes_that_race_pay_once(nursery: Nursery, folder: Path, store: str) -> None:
    invoices = tuple(f"A-{number}" for number in range(12))
    children = []
    for number in range(3):
        orders = invoices if number % 2 else tuple(reversed(invoices))
        task = task_in(folder, "verbs", store, threads=(f"t{number}",), invoices=orders)
        children.append(nursery.start("tests.runs.act_agent:race", task))
    for child in children:
        try:
            child.wait_for_end()
        finally:
            child.close()
        assert child.failure is None, child.failure
        assert child.lines == ["ended"]
    assert sorted(line.split()[0] for line in (folder / "ledger").read_text().splitlines()) == sorted(invoices)
