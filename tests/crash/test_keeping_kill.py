"""Backup and repair that are cut off, anywhere: the store is as it was, byte for byte, and what there is of the copy is
never taken for all of it.

`make test` takes a share of the system calls, HOLDFAST_LAB=full all of them; HOLDFAST_LAB_POINT=pwrite64/12 the twelfth
of that name alone. That nothing else than verbs of the contract is between two calls of the target, all stores show.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

import holdfast
from holdfast import Holdfast, HoldfastError, maintenance
from holdfast.errors import AlreadyExists, WrongKey
from holdfast.urls import open_plain
from tests.covers import covers
from tests.crash import ledger
from tests.crash.lab import FULL, POINT, repeated_by, spread
from tests.crash.nursery import Nursery
from tests.crash.test_erase_kill import Crash, Mortal
from tests.crash.tracing import WRITING, Fault, Traced, trace
from tests.memory import folder_in_memory
from tests.threads.wholes import CIPHER, address, fill, fingerprint, seen

Kind = Literal["sqlite", "directory"]
Verb = Literal["back_up", "repair"]
SHARE = 2  # of the calls of each name: the first and the last
MORE = 20  # calls that a copying may make beyond those of the first: times differ, and so do sizes


class Ground:
    """Where a store is copied from, and whoever copies it is killed."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self._folder = folder
        self._nursery = nursery
        self._before: dict[Kind, dict[str, Any]] = {}

    def attempt(self, verb: Verb, kind: Kind, fault: Fault | None) -> Traced:
        """Let a verb meet a fault, and look at what is left."""
        template = self._template(kind)
        world = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            shutil.copytree(template, world / "old")
            (world / "new").mkdir()
            task = world.with_suffix(".task")
            task.write_text(f"{address(kind, world / 'old')}\n{address(kind, world / 'new')}")
            traced = trace(self._nursery, f"tests.crash.keeping_child:{verb}", task, WRITING, fault)
            assert traced.ended == "killed" or traced.lines == ["done"], traced.lines
            assert stored(world / "old") == stored(template)
            if verb == "back_up":
                self._judge_backup(world, kind)
            else:
                self._judge_repair(world, kind)
            return traced
        finally:
            shutil.rmtree(world)
            for beside in self._folder.glob(f"{world.name}.*"):
                beside.unlink()

    def _judge_backup(self, world: Path, kind: Kind) -> None:
        """Under its name the copy is whole or not there; what lies beside that name is whole, empty, or no store."""
        place = world / "new" / ("store.db" if kind == "sqlite" else "store")
        beside = [each for each in place.parent.iterdir() if each.name.endswith(".part")]
        is_there = place.exists()
        if is_there:
            self._expect_whole(address(kind, world / "new"), kind)
        for part in beside:
            assert not is_there
            try:
                with holdfast.open(part if kind == "sqlite" else f"dir:{part}") as hf:
                    assert not list(hf.threads()) or not hf.verify().ok or seen(hf) == self._before[kind]
            except HoldfastError:
                pass
        with holdfast.open(address(kind, world / "old")) as hf:
            if is_there:
                with pytest.raises(AlreadyExists):
                    hf.backup(address(kind, world / "new"))
            else:
                assert hf.backup(address(kind, world / "new")).report.ok
        self._expect_whole(address(kind, world / "new"), kind)

    def _judge_repair(self, world: Path, kind: Kind) -> None:
        """Under its name the new store is whole or not there; another repair is as good as if nothing had happened."""
        place = world / "new" / ("store.db" if kind == "sqlite" else "store")
        is_there = place.exists()
        with holdfast.open(address(kind, world / "old")) as hf:
            if is_there:
                self._expect_whole(address(kind, world / "new"), kind)
                with pytest.raises(AlreadyExists):
                    hf.repair(address(kind, world / "new"))
            else:
                assert hf.repair(address(kind, world / "new")).ok
        self._expect_whole(address(kind, world / "new"), kind)

    def _expect_whole(self, url: str, kind: Kind) -> None:
        with holdfast.open(url) as hf:
            assert hf.verify().problems == ()
            assert seen(hf) == self._before[kind]

    def _template(self, kind: Kind) -> Path:
        template = self._folder / f"template-{kind}"
        if kind not in self._before:
            template.mkdir()
            with holdfast.open(address(kind, template)) as hf:
                fill(hf)
                hf.optimize()
                self._before[kind] = seen(hf)
        return template


def stored(folder: Path) -> dict[str, str]:
    """The bytes of a store. SQLite makes an empty WAL when a file is opened, and does not count it as a part of it."""
    empty = {str(path.relative_to(folder)) for path in folder.rglob("*-wal") if not path.stat().st_size}
    return {name: digest for name, digest in fingerprint(folder).items() if name not in empty}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with folder_in_memory() as folder, Nursery() as nursery:
        yield Ground(folder, nursery)


@covers("F7")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
@pytest.mark.parametrize("verb", ["back_up", "repair"])
def test_killed_at_every_call(ground: Ground, verb: Verb, kind: Kind) -> None:
    killed: Counter[str] = Counter()
    calls = Counter(call.name for call in ground.attempt(verb, kind, None).calls)
    assert sum(calls.values()) > 5, calls
    for name, count in calls.items():
        for number in _numbers(name, count):
            with repeated_by(f"{name}/{number}"):
                traced = ground.attempt(verb, kind, Fault(name, str(number), "signal=KILL"))
            if traced.ended == "itself":
                assert number > count - MORE, f"{name} {number} of {count} was not reached"
                break
            killed[name] += 1
    ledger.note("kill while backing up" if verb == "back_up" else "kill while repairing", kind, **killed)
    assert POINT or set(killed) == set(calls), f"killed at {killed} only"


def _numbers(name: str, count: int) -> Sequence[int]:
    """Which of the calls of a name are tried: the first, the second … until one is not reached, or a share of them."""
    if POINT:
        return [int(POINT.rpartition("/")[2])] if POINT.startswith(f"{name}/") else []
    return range(1, count + MORE) if FULL else spread(range(1, count + 1), SHARE)


# -- between two calls of the target ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "directory", "postgres", "encrypted"])
def test_a_repair_cut_off_at_every_call_of_its_target(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cipher = CIPHER if kind == "encrypted" else None
    to = "sqlite" if kind == "encrypted" else kind
    with holdfast.open("memory:", cipher=cipher) as hf:
        small(hf)
        before, mark = seen(hf), hf.fingerprint()

        def cut_off(target: str, number: int, *, is_done: bool) -> int:
            targets: list[Mortal] = []

            def mortal(*args: Any, **options: Any) -> Mortal:
                targets.append(Mortal(open_plain(*args, **options), number, is_done=is_done))
                return targets[0]

            with monkeypatch.context() as patched:
                patched.setattr(maintenance, "open_plain", mortal)
                try:
                    hf.repair(target)
                except Crash:
                    pass
                else:
                    assert not number or targets[0].calls < number, "it must not swallow its own death"
            return targets[0].calls

        def attempt(number: int, *, is_done: bool) -> int:
            name = f"{number} {is_done}"
            target = address(to, tmp_path, name)
            with repeated_by(f"{number}/{'after' if is_done else 'before'}"):
                calls = cut_off(target, number, is_done=is_done)
                assert hf.verify(deep=False, fingerprint=mark).ok
                try:
                    assert hf.repair(target).ok
                except (AlreadyExists, WrongKey):
                    target = address(to, tmp_path, f"{name} again")
                    assert hf.repair(target).ok
                with holdfast.open(target, cipher=cipher, durability="off") as new:
                    assert new.verify().problems == ()
                    assert seen(new) == before
            return calls

        if POINT:
            named, _, when = POINT.partition("/")
            attempt(int(named), is_done=when == "after")
            return
        count = attempt(0, is_done=False)
        assert count > 10
        numbers = spread(range(1, count + 1), count if FULL else 2 if kind == "postgres" else 4)
        for number in numbers:
            for is_done in (False, True):
                attempt(number, is_done=is_done)
        ledger.note("cut off while repairing", kind, calls=2 * len(numbers))


def small(hf: Holdfast) -> None:
    """Forks of a thread that is there and of one that is dropped, a rewind, a deletion, a value, and a run."""
    for name in ("t", "origin"):
        for step in range(3):
            state = {"messages": [f"{name} {number}" for number in range(40 + step)], "large": name * 9000}
            hf.thread(name).save(state)
        hf.thread(name).fork(f"fork of {name}", at="@2").save({"messages": ["other"]})
    hf.thread("origin").drop()
    hf.thread("t").rewind("@2")
    hf.thread("t").delete("@1")
    with hf.run("run", start={"n": 0}) as run:
        run.finish(run.model(lambda: "reply"))
