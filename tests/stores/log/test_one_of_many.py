"""One thread of many is damaged: the others are listed, tidied and run, and nobody is told that it is not there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.errors import Damaged, HoldfastError
from holdfast.formats.lines import reseal
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import names_of, running, saved
from tests.covers import covers
from tests.stores.log.conftest import Open, damage_line, log_of

LONG = "b" * 200


def state(n: int) -> dict[str, list[str]]:
    return {"messages": [f"message {at} " * 30 for at in range(n)]}


@pytest.fixture
def ids(path: Path) -> dict[int, str]:
    """The ids of the checkpoints of b, one of three threads whose last end is damaged."""
    with holdfast.open(f"dir:{path}", durability="off") as hf:
        for name in ("a", "b", "c"):
            for n in range(1, 4):
                hf.thread(name).save(state(n), label=f"l{n}")
        ids = {checkpoint.seq: checkpoint.id for checkpoint in hf.thread("b").history()}
    damage_line(log_of(path, "b"), "end")
    return ids


@pytest.fixture
def hf(path: Path) -> Iterator[Holdfast]:
    with holdfast.open(f"dir:{path}", durability="off") as opened:
        yield opened


def some(things: Iterator[object]) -> tuple[list[object], HoldfastError | None]:
    """What an iterator gives, and how it ends."""
    seen = deque[object]()
    try:
        seen.extend(things)
    except HoldfastError as error:
        return list(seen), error
    return list(seen), None


def test_its_older_checkpoints_can_be_loaded(ids: dict[int, str], hf: Holdfast) -> None:
    thread = hf.thread("b")
    for seq in (1, 2):
        assert thread.load(ids[seq]).state == state(seq)
        assert thread.load(ids[seq][-8:]).seq == seq
    for ref in (ids[3], "@-1", "@l1", "@2"):
        with pytest.raises(Damaged, match="newest"):
            thread.load(ref)
    seen, error = some(checkpoint.seq for checkpoint in thread.history())
    assert seen == [2, 1]
    assert isinstance(error, Damaged)
    with pytest.raises(Damaged):
        thread.latest()
    fallback = thread.latest(fallback=True)
    assert fallback is not None
    assert fallback.state == state(2)
    assert "damaged" in fallback.skipped[0].why
    with pytest.raises(Damaged):
        thread.save(state(4))


def test_nothing_is_fallen_back_to_where_it_may_have_been_abandoned(path: Path, hf: Holdfast) -> None:
    for n in range(1, 4):
        hf.thread("t").save(state(n))
    hf.thread("t").rewind("@-2")
    damage_line(log_of(path, "t"), "end")
    with holdfast.open(f"dir:{path}", durability="off") as opened, pytest.raises(Damaged):
        opened.thread("t").latest(fallback=True)


@covers("A7")
def test_the_others_are_listed_and_then_it_is_told(ids: dict[int, str], hf: Holdfast) -> None:
    seen, error = some(info.name for info in hf.threads())
    assert seen == ["a", "c"]
    assert isinstance(error, Damaged)
    assert "threads/b" in str(error)
    assert [info.name for info in hf.threads(prefix="a")] == ["a"]


def newer(log: Path) -> None:
    first, rest = log.read_bytes().split(b"\n", 1)
    log.write_bytes(reseal(b"{" + first[18:].replace(b'"format":1', b'"format":2')) + rest)


def unknown(log: Path) -> None:
    log.write_bytes(log.read_bytes() + reseal(b'{"t":"later"}') + reseal(b'{"t":"end","of":"q","number":2,"group":9}'))


def loop(log: Path) -> None:
    log.unlink()
    log.symlink_to(log)


@pytest.mark.parametrize("happens", [newer, unknown, loop])
@pytest.mark.parametrize("name", ["b", LONG])
def test_a_log_that_cannot_be_followed_is_told_by_listings_and_by_a_check(
    store: DirectoryStore, path: Path, name: str, happens: Callable[[Path], None]
) -> None:
    for each in ("a", name, "c"):
        saved(store, each, "x")
    store.close()
    [log] = (path / "default" / "threads").glob("b*/log.jsonl")
    happens(log)
    with holdfast.open(f"dir:{path}", durability="off") as hf:
        seen, error = some(info.name for info in hf.threads())
        assert seen == ["a", "c"]
        assert error is not None
        report = hf.verify()
        assert any("threads/b" in problem.what for problem in report.problems)


def test_the_others_are_tidied(ids: dict[int, str], hf: Holdfast, path: Path) -> None:
    for checkpoint in list(hf.thread("a").history())[1:]:
        hf.thread("a").delete(checkpoint.id)
    before = log_of(path, "b").read_bytes()
    size = log_of(path, "a").stat().st_size
    done = hf.optimize()
    assert done.damaged >= 1
    assert log_of(path, "a").stat().st_size < size
    assert log_of(path, "b").read_bytes() == before
    assert not hf.verify().ok


def test_a_run_whose_record_is_damaged_is_told_behind_the_others(
    store: DirectoryStore, open_store: Open, path: Path
) -> None:
    for name in ("a", "b", "c"):
        running(store, name)
    store.close()
    damage_line(log_of(path, "b"), "run")
    other = open_store()
    found = other.runs(statuses=("running",), after=(0, 0), limit=9)
    assert [name for name, _ in found] == ["a", "c"]
    with pytest.raises(Damaged, match="threads/b"):
        other.runs(statuses=(), after=(0, 0), limit=9)
    assert names_of(other) == ["a", "b", "c"]


def test_a_listing_of_runs_ends_with_the_one_that_is_damaged(hf: Holdfast, path: Path) -> None:
    for name in ("a", "b", "c"):
        hf.submit("handler", name, start=state(1))
    damage_line(log_of(path, "b"), "run")
    with holdfast.open(f"dir:{path}", durability="off") as opened:
        seen, error = some(stuck.thread for stuck in opened.stuck(0))
        assert seen == ["a", "c"]
        assert isinstance(error, Damaged)
        assert isinstance(some(opened.interrupted())[1], Damaged)
