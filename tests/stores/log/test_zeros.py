"""Zero bytes: what a power cut leaves has the edges of a disk's sectors, anything else is damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import Line, saved, texts_of
from holdfast.threads.scan import thread_named
from tests.stores.log.conftest import Open, log_of, records_of

SECTOR = 512


@pytest.fixture
def line(store: DirectoryStore) -> Line:
    return saved(store, "a", "x", *(f"{n:0400}" for n in range(3)), " ".join(f"{n:0400}" for n in range(10)))


def last_group(log: Path) -> int:
    """Where the last group begins."""
    lines = log.read_bytes().splitlines(keepends=True)
    ends = [at for at, line in enumerate(lines) if json.loads(line)["t"] == "end"]
    return len(b"".join(lines[: ends[-2] + 1]))


def zeros(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + b"\0" * (end - start) + data[end:]


def up(offset: int) -> int:
    return -(-offset // SECTOR) * SECTOR


@pytest.mark.parametrize("length", [1, 5, 50])
@pytest.mark.parametrize("kind", ["end", "checkpoint", "cell"])
def test_a_byte_of_an_acknowledged_group_that_became_zero_is_damage(
    line: Line, open_store: Open, path: Path, length: int, kind: str
) -> None:
    log = log_of(path, "a")
    whole = log.read_bytes()
    at = whole.rindex(b'"t":"%b"' % kind.encode()) + 3
    at += at % SECTOR == 0
    log.write_bytes(zeros(whole, at, at + length))
    store = open_store()
    assert list(store.check()) != []
    found = None
    if kind == "end":
        with pytest.raises(Damaged, match=r"log\.jsonl"):
            thread_named(store, "a")
        line.store = store
        with pytest.raises(Damaged):
            line.save("z")
        assert list(log.parent.iterdir()) == [log]
    else:
        found = thread_named(store, "a")
        assert found is not None
        assert found.position.head == 5


def test_the_sectors_of_the_last_group_may_reach_the_disk_in_any_order(
    line: Line, open_store: Open, path: Path
) -> None:
    log = log_of(path, "a")
    whole = log.read_bytes()
    start = last_group(log)
    holes = [(start, up(start + 1)), (up(start + 1), up(start + 1) + SECTOR), (start, up(start + 1) + 3 * SECTOR)]
    holes += [(up(start + 1) + SECTOR, len(whole)), (len(whole) // SECTOR * SECTOR, len(whole))]
    for hole in holes:
        torn = zeros(whole, *hole)
        log.write_bytes(torn)
        reader = open_store()
        found = thread_named(reader, "a")
        assert found is not None
        assert found.position.head == 4, f"zeros from {hole[0]} to {hole[1]}: this was never acknowledged"
        assert list(reader.check()) == []
        assert log.read_bytes() == torn
        reader.close()


def test_a_group_with_a_hole_is_set_aside_by_the_next_write(line: Line, open_store: Open, path: Path) -> None:
    log = log_of(path, "a")
    start = last_group(log)
    torn = zeros(log.read_bytes(), start, up(start + 1))
    log.write_bytes(torn)
    store = open_store()
    again = Line(store, "a")
    found = thread_named(store, "a")
    assert found is not None
    again.position, again._seqs = found.position, [1, 2, 3, 4]
    again.save("new")
    assert texts_of(open_store(), again.span(4)) == [["new"]]
    records_of(log)
    [aside] = log.parent.glob("torn-*")
    assert aside.read_bytes() == torn[start:]


def test_a_hole_before_the_last_group_is_damage(line: Line, open_store: Open, path: Path) -> None:
    log = log_of(path, "a")
    start = last_group(log)
    line.save("more")
    log.write_bytes(zeros(log.read_bytes(), start, up(start + 1)))
    store = open_store()
    found = thread_named(store, "a")
    assert found is not None
    assert found.position.head == 6
    assert list(store.check()) != []
    with pytest.raises(Damaged):
        store.cells([line.span()])
