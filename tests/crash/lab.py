"""The crash lab: a worker whose system calls fail, or who is killed at one, and a judge who looks at what is left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.crash.judge import Trial
from tests.crash.nursery import Nursery
from tests.crash.tracing import Fault, Traced, trace
from tests.crash.workload import Kind, Scene, Task
from tests.memory import folder_in_memory

FULL = os.environ.get("HOLDFAST_LAB") == "full"
POINT = os.environ.get("HOLDFAST_LAB_POINT", "")
"""A fault, as a failure names it: with it, a test tries that one and no other."""


class Lab:
    """Makes workers, breaks them, has them judged; each in a folder of its own."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._calls: dict[tuple[Kind, Scene, Sequence[str]], Counter[str]] = {}

    def calls(self, kind: Kind, scene: Scene, names: Sequence[str]) -> Counter[str]:
        """How often an unharmed worker makes each of these calls, up to the last one that concerns its store."""
        known = self._calls.get((kind, scene, names))
        if known is None:
            with self._world() as world:
                traced = self._work(world, kind, scene, names, None, Task(""))
                known = Counter[str]()
                for call in traced.calls:
                    if call.is_on(world):
                        known[call.name] = call.number
                self._judge(world, kind, scene, traced.lines)
            self._calls[kind, scene, names] = known
        return known

    def attempt(
        self, kind: Kind, scene: Scene, names: Sequence[str], fault: Fault | None, task: Task | None = None
    ) -> Traced | None:
        """Let a worker meet a fault, and judge what is left. None if the call that was struck was not on its store."""
        with self._world() as world:
            traced = self._work(world, kind, scene, names, fault, task or Task(""))
            struck = traced.struck
            if struck is not None and not struck.is_on(world):
                return None
            where = "" if struck is None else f"struck: {struck.shown}\n"
            leaked = next((line for line in traced.lines if line.startswith("leaked ")), None)
            if leaked is not None:
                raise AssertionError(where + msgspec.json.decode(leaked.removeprefix("leaked "), type=str))
            try:
                self._judge(world, kind, scene, traced.lines)
            except AssertionError as failure:
                raise AssertionError(f"{where}the worker said: {', '.join(traced.lines)}\n{failure}") from failure
            return traced

    def _work(
        self, world: Path, kind: Kind, scene: Scene, names: Sequence[str], fault: Fault | None, task: Task
    ) -> Traced:
        task.store, task.scene = _address(world, kind), scene
        path = world.with_suffix(".task")
        path.write_bytes(msgspec.json.encode(task))
        traced = trace(self._nursery, "tests.crash.workload:work", path, names, fault)
        if traced.ended == "itself":
            assert traced.lines, "the worker ended without a word"
            assert traced.lines[-1].partition(" ")[0] in ("ended", "leaked"), traced.lines
        return traced

    def _judge(self, world: Path, kind: Kind, scene: Scene, said: list[str]) -> None:
        path = world.with_suffix(".trial")
        path.write_bytes(msgspec.json.encode(Trial(_address(world, kind), scene, said)))
        child = self._nursery.start("tests.crash.judge:judge", path)
        try:
            child.wait_for_end()
        finally:
            child.close()
        assert child.failure is None, child.failure
        assert child.lines == ["sound"], child.lines

    @contextmanager
    def _world(self) -> Generator[Path]:
        path = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            yield path
        finally:
            shutil.rmtree(path)
            for beside in self._folder.glob(f"{path.name}.*"):
                beside.unlink()


def _address(world: Path, kind: Kind) -> str:
    return f"dir:{world / 'store'}" if kind == "directory" else str(world / "store")


@contextmanager
def opened_lab() -> Generator[Lab]:
    """A lab in memory where there is such a place: a kill leaves what was written, synced or not; syncs take long."""
    with folder_in_memory() as folder, Nursery() as nursery:
        yield Lab(nursery, folder)


def spread(many: Sequence[int], most: int) -> list[int]:
    """So many of them, evenly, the first and the last among them."""
    if len(many) <= most:
        return list(many)
    if most == 1:
        return [many[0]]
    return sorted({many[i * (len(many) - 1) // (most - 1)] for i in range(most)})


@contextmanager
def repeated_by(point: str) -> Generator[None]:
    """A failure in here says how to try that point again."""
    try:
        yield
    except AssertionError as error:
        failure = str(error)
    else:
        return
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    pytest.fail(f"{point}:\n{failure}\nTo repeat: HOLDFAST_LAB_POINT={point} pytest '{test}'", pytrace=False)
