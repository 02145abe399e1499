"""The power laboratory: a recorded program, the power cut after each thing it did, and a judge for what is left."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Container, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from tests.crash.judge import Trial
from tests.crash.lab import POINT
from tests.crash.nursery import Nursery
from tests.crash.power_disk import MODELS, Disk, Image, Model, Said, write_image
from tests.crash.power_recording import Recording, read_recording, record
from tests.crash.workload import Kind, Scene, Task
from tests.memory import folder_in_memory

RECORD = os.environ.get("HOLDFAST_LAB_RECORD", "")
"""A file with a recording, as a failure names it: with it, a test cuts that one, and records none."""


Point = tuple[int, Model, int]


class Cut(NamedTuple):
    """The power was cut after so many events. What a program had said by then, and what is on the disk."""

    after: int
    model: Model
    draw: int  # of several, where chance decides
    said: list[str]
    image: Image

    @property
    def point(self) -> str:
        return f"{self.after}/{self.model}/{self.draw}"


def cuts(recording: Recording, draws: int, wanted: Container[Point] | None = None) -> Iterator[Cut]:
    """Every cut of a recording, or those that are wanted; of some that leave the same, to who said the same, one."""
    disk = Disk(recording.before)
    said: list[str] = []
    known: set[bytes] = set()
    for after in range(len(recording.events) + 1):
        if after:
            event = recording.events[after - 1]
            disk.do(event)
            said += [event.text] if isinstance(event, Said) else []
        for model, draw in _ways(draws):
            if wanted is not None and (after, model, draw) not in wanted:
                continue
            cut = Cut(after, model, draw, list(said), disk.after_cut(model, Random(f"{after}/{draw}")))
            mark = _mark(cut)
            if mark not in known:
                known.add(mark)
                yield cut


def _ways(draws: int) -> Iterator[tuple[Model, int]]:
    for model in MODELS:
        for draw in range(draws if model == "torn" else 1):
            yield model, draw


def _mark(cut: Cut) -> bytes:
    digest = hashlib.blake2b(f"{len(cut.said)}".encode())
    for path, data in sorted(cut.image.items()):
        digest.update(f"{path} {None if data is None else len(data)}\n".encode())
        digest.update(data or b"")
    return digest.digest()


class PowerLab:
    """Records programs, and has judged what power cuts leave of their stores."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._recorded: dict[bytes, Recording] = {}

    def record(self, kind: Kind, task: Task) -> Recording:
        """What the crash lab's worker does, or what was recorded before."""
        if RECORD:
            return read_recording(Path(RECORD))
        key = kind.encode() + msgspec.json.encode(task)
        if key in self._recorded:
            return self._recorded[key]
        with self._world() as world:
            task.store = _address(world, kind)
            recording = self._recorded[key] = self._record("tests.crash.workload:work", world, task)
        assert recording.said[-1] == "ended", recording.said
        assert not any(text.startswith(("failed", "leaked")) for text in recording.said), recording.said
        return recording

    def record_again(self, kind: Kind, scene: Scene, cut: Cut) -> Recording:
        """What somebody does who opens the store that a cut has left."""
        with self._world() as world:
            write_image(world, cut.image)
            trial = Trial(_address(world, kind), scene, cut.said)
            recording = self._record("tests.crash.power_judge:work_again", world, trial)
        recording.events[:0] = [Said(text) for text in cut.said]
        return recording

    def judge(self, kind: Kind, scene: Scene, cut: Cut, judge: str) -> None:
        """Have a fresh process look at what a cut has left: AssertionError if it is not what it should be."""
        with self._world() as world:
            write_image(world, cut.image)
            path = _write_task(world, Trial(_address(world, kind), scene, cut.said))
            child = self._nursery.start(judge, path)
            try:
                child.wait_for_end()
            finally:
                child.close()
            assert child.failure is None, child.failure
            assert child.lines == ["sound"], child.lines

    def _record(self, program: str, world: Path, task: Task | Trial) -> Recording:
        return record(self._nursery, program, _write_task(world, task), world)

    @contextmanager
    def _world(self) -> Generator[Path]:
        path = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            yield path
        finally:
            shutil.rmtree(path)
            for beside in self._folder.glob(f"{path.name}.*"):
                beside.unlink()


def _write_task(world: Path, task: Task | Trial) -> Path:
    path = world.with_suffix(".task")
    path.write_bytes(msgspec.json.encode(task))
    return path


def _address(world: Path, kind: Kind) -> str:
    return f"dir:{world / 'store'}" if kind == "directory" else str(world / "store")


@contextmanager
def opened_power_lab() -> Generator[PowerLab]:
    """A lab in memory where there is such a place: what a real disk would do is not asked."""
    with folder_in_memory() as folder, Nursery() as nursery:
        yield PowerLab(nursery, folder)


def chosen(recording: Recording, most: int | None, draws: int = 4) -> list[Cut]:
    """The cuts to try: all, so many of them at most, or the one that is asked for."""
    if POINT:
        after, model, draw = POINT.split("/")
        model = next(known for known in MODELS if known == model)
        return list(cuts(recording, int(draw) + 1, {(int(after), model, int(draw))}))
    if most is None:
        return list(cuts(recording, draws))
    points = [(after, *way) for after in range(len(recording.events) + 1) for way in _ways(draws)]
    random = Random(most)
    # Several times as many: many leave the same.
    found = list(cuts(recording, draws, set(random.sample(points, min(4 * most, len(points))))))
    return sorted(random.sample(found, min(most, len(found))), key=lambda cut: cut.after)


def repeat_by(recording: Recording, cut: Cut, failure: AssertionError) -> None:
    """Fail, and say how to see the same again: the recording is kept."""
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    handle, path = tempfile.mkstemp(prefix="holdfast-power-", suffix=".recording")
    os.close(handle)
    recording.write(Path(path))
    last = recording.events[cut.after - 1] if cut.after else "nothing"
    pytest.fail(
        f"{cut.point}, after {str(last)[:200]}\nsaid: {', '.join(cut.said)}\n{failure}\n"
        f"To repeat: HOLDFAST_LAB_RECORD={path} HOLDFAST_LAB_POINT={cut.point} pytest '{test}'",
        pytrace=False,
    )
