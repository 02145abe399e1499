"""Erasing that is cut off, anywhere: the store stays sound, others lose nothing, and erasing again completes it.

`make test` takes a share of the system calls, HOLDFAST_LAB=full all of them; HOLDFAST_LAB_POINT=pwrite64/12 the twelfth
of that name alone. That nothing else than the verbs of the contract is between two calls of the store, all stores show.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import pytest

import holdfast
from holdfast import Cipher, Holdfast
from holdfast.stores.contract import Store
from holdfast.urls import open_store
from tests.crash import ledger
from tests.crash.lab import FULL, POINT, repeated_by, spread
from tests.crash.nursery import Nursery
from tests.crash.tracing import WRITING, Fault, Traced, trace
from tests.memory import folder_in_memory
from tests.stores.postgres.server import address_at
from tests.threads.subject import OTHERS, SUBJECT, found_in, plant, states

Kind = Literal["sqlite", "directory"]
SHARE = 2  # of the calls of each name
MORE = 20  # calls that an erasing may make beyond those of the first: times differ, and so do sizes
FORK = "others/fork"
CIPHER = Cipher(keys={"k": bytes(32)}, current="k")


def address(kind: Kind, folder: Path) -> str:
    return f"dir:{folder / 'store'}" if kind == "directory" else str(folder / "store")


def check_and_finish(hf: Holdfast, before: dict[str, list[Any]]) -> None:
    """Whatever was erased by now, the rest is as it was; and erasing again ends it."""
    for _ in range(2):
        assert states(hf, *before) == before
        assert hf.verify().problems == ()
        for info in hf.threads():
            assert hf.thread(info.name).latest() is not None
        hf.erase(SUBJECT)
    assert sorted(info.name for info in hf.threads()) == sorted(before)


# -- at a system call -------------------------------------------------------------------------------------------------


class Ground:
    """Where a store with a subject is copied from, and its eraser killed."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self._folder = folder
        self._nursery = nursery
        self._before: dict[Kind, dict[str, list[Any]]] = {}

    def attempt(self, kind: Kind, fault: Fault | None) -> Traced:
        """Let an eraser meet a fault, and look at what is left."""
        template = self._template(kind)
        world = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            shutil.copytree(template, world, dirs_exist_ok=True)
            task = world.with_suffix(".task")
            task.write_text(address(kind, world))
            traced = trace(self._nursery, "tests.crash.erasing_child:erase", task, WRITING, fault)
            assert traced.ended == "killed" or traced.lines == ["erased"], traced.lines
            with holdfast.open(address(kind, world)) as hf:
                check_and_finish(hf, self._before[kind])
            assert found_in(world) == set()
            return traced
        finally:
            shutil.rmtree(world)
            for beside in self._folder.glob(f"{world.name}.*"):
                beside.unlink()

    def _template(self, kind: Kind) -> Path:
        template = self._folder / f"template-{kind}"
        if kind not in self._before:
            template.mkdir()
            with holdfast.open(address(kind, template)) as hf:
                plant(hf)
                self._before[kind] = states(hf)
            assert found_in(template) != set()
        return template


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with folder_in_memory() as folder, Nursery() as nursery:
        yield Ground(folder, nursery)


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_killed_at_every_call(ground: Ground, kind: Kind) -> None:
    killed: Counter[str] = Counter()
    calls = Counter(call.name for call in ground.attempt(kind, None).calls)
    assert sum(calls.values()) > 15, calls
    for name, count in calls.items():
        for number in _numbers(name, count):
            with repeated_by(f"{name}/{number}"):
                traced = ground.attempt(kind, Fault(name, str(number), "signal=KILL"))
            if traced.ended == "itself":
                assert number > count - MORE, f"{name} {number} of {count} was not reached"
                break
            killed[name] += 1
    ledger.note("kill while erasing", kind, **killed)
    assert POINT or set(killed) == set(calls), f"killed at {killed} only"


def _numbers(name: str, count: int) -> Sequence[int]:
    """Which of the calls of a name are tried: the first, the second … until one is not reached, or a share of them."""
    if POINT:
        return [int(POINT.rpartition("/")[2])] if POINT.startswith(f"{name}/") else []
    return range(1, count + MORE) if FULL else spread(range(1, count + 1), SHARE)


# -- between two calls of the store -----------------------------------------------------------------------------------


class Crash(BaseException):
    """The process dies here."""


class Mortal:
    """A store whose caller dies at one of the calls: before it, or when it is done and nobody has heard of that."""

    def __init__(self, store: Store, at: int, *, is_done: bool) -> None:
        self._store = store
        self._left = at
        self._is_done = is_done
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not callable(verb) or name == "close":
            return verb

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self._left and not self._is_done:
                raise Crash
            answer = verb(*args, **kwargs)
            if self.calls == self._left:
                raise Crash
            return answer

        return call


def small(hf: Holdfast) -> None:
    """Others, and a subject with a fork, a run and values, one of which another has, too."""
    for name in (*OTHERS, SUBJECT):
        for step in range(3):
            state = {
                "messages": [f"{name} {number}" for number in range(40 + step)],
                "large": name * 9000,
                "x": "x" * 20_000,
            }
            hf.thread(name).save(state, metadata={"name": name})
    hf.thread(SUBJECT).fork(FORK, at="@2").save({"messages": ["other"]})
    with hf.run(SUBJECT) as run:
        run.finish(run.model(lambda: "reply"))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "directory", "postgres", "encrypted"])
def test_cut_off_at_every_call_of_the_store(kind: str, tmp_path: Path) -> None:
    kept: list[Store] = []

    def opened(folder: Path) -> Store:
        folder.mkdir(exist_ok=True)
        if kind == "memory":
            kept.append(open_store("memory:", namespace="default", durability="off"))
            return kept[-1]
        cipher = CIPHER if kind == "encrypted" else None
        urls: dict[str, Callable[[], str]] = {
            "directory": lambda: address("directory", folder),
            "postgres": lambda: address_at(folder),
        }
        url = urls.get(kind, lambda: address("sqlite", folder))()
        return open_store(url, namespace="default", durability="off", cipher=cipher)

    def attempt(number: int, *, is_done: bool) -> int:
        folder = tmp_path / f"{number}-{is_done}"
        store = opened(folder)
        hf = Holdfast(store)
        small(hf)
        before = states(hf, *OTHERS, FORK)
        mortal = Mortal(store, number, is_done=is_done)
        try:
            Holdfast(cast(Store, mortal)).erase(SUBJECT)
        except Crash:
            pass
        else:
            assert not number or mortal.calls < number, "it must not swallow its own death"
        if kind != "memory":
            hf.close()
            hf = Holdfast(opened(folder))
        try:
            with repeated_by(f"{number}/{'after' if is_done else 'before'}"):
                check_and_finish(hf, before)
        finally:
            hf.close()
        return mortal.calls

    if POINT:
        named, _, when = POINT.partition("/")
        attempt(int(named), is_done=when == "after")
        return
    count = attempt(0, is_done=False)
    assert count > 20
    share = {"memory": 8, "postgres": 1}.get(kind, 3)
    numbers = spread(range(1, count + 1), count if FULL else share)
    for number in numbers:
        for is_done in (False, True):
            attempt(number, is_done=is_done)
    ledger.note("cut off while erasing", kind, calls=2 * len(numbers))
