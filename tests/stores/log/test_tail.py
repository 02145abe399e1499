"""What a crash leaves at the end of a log: recognised, not read, and set aside by the next write."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import Line, everything, saved, texts_of
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.stores.log.conftest import Open, damage_line, log_of, records_of


@pytest.fixture
def line(store: DirectoryStore) -> Line:
    return saved(store, "a", "x", "y")


def last_group(log: Path) -> tuple[int, bytes]:
    """Where the last group begins, and its bytes."""
    lines = log.read_bytes().splitlines(keepends=True)
    ends = [at for at, line in enumerate(lines) if json.loads(line)["t"] == "end"]
    return len(b"".join(lines[: ends[-2] + 1])), b"".join(lines[ends[-2] + 1 :])


@covers("A1", "continuum/AtomicFileWriter.write_atomic")
def test_a_group_is_there_when_its_last_byte_is(line: Line, open_store: Open, path: Path) -> None:
    log = log_of(path, "a")
    whole = log.read_bytes()
    start, group = last_group(log)
    for cut in range(len(group)):
        log.write_bytes(whole[: start + cut])
        reader = open_store()
        assert line.store is not reader
        found = thread_named(reader, "a")
        assert found is not None
        assert (found.position.head, found.count) == (1, 1), f"cut after {cut} bytes of the last group"
        assert list(reader.check()) == []
        reader.close()
    log.write_bytes(whole)
    assert line.stored().position.head == 2


@covers("A11")
@pytest.mark.parametrize("tail", [b"\0" * 5000, b'{"crc":"', b"x"])
def test_a_tail_is_set_aside_by_the_next_write_and_nothing_of_it_is_lost(
    line: Line, open_store: Open, path: Path, tail: bytes
) -> None:
    log = log_of(path, "a")
    whole = log.read_bytes()
    log.write_bytes(whole + tail)
    reader = open_store()
    before = everything(reader)
    assert log.read_bytes() == whole + tail, "reading changes nothing"
    line.save("z")
    assert log.read_bytes().startswith(whole)
    records_of(log)
    [aside] = log.parent.glob("torn-*")
    assert aside.read_bytes() == tail
    assert aside.name == f"torn-{len(whole)}-1"
    assert everything(reader) != before
    assert texts_of(reader, line.span()) == [["x", "y", "z"]]
    assert list(reader.check()) == []


def test_a_torn_group_is_not_there_and_the_next_save_takes_its_place(line: Line, open_store: Open, path: Path) -> None:
    log = log_of(path, "a")
    start, group = last_group(log)
    log.write_bytes(log.read_bytes()[: start + len(group) - 1])
    again = open_store()
    found = thread_named(again, "a")
    assert found is not None
    assert found.position.head == 1
    line.position = found.position
    line._seqs.pop()
    line.store = again
    line.save("other")
    assert texts_of(open_store(), line.span()) == [["x", "other"]]
    kinds = [record["t"] for record in records_of(log)]
    assert kinds == ["thread", "cell", "checkpoint", "end", "cell", "checkpoint", "end"]


def test_a_whole_line_that_is_wrong_is_damage_and_not_a_tail(line: Line, open_store: Open, path: Path) -> None:
    log = log_of(path, "a")
    offset = damage_line(log, "end")
    damaged = log.read_bytes()
    store = open_store()
    with pytest.raises(Damaged, match=rf"log\.jsonl: \d+ bytes at offset {offset} are damaged"):
        thread_named(store, "a")
    line.store = store
    with pytest.raises(Damaged):
        line.save("z")
    assert [problem.thread for problem in store.check()] == ["a"]
    assert log.read_bytes() == damaged, "what cannot be read is left as it is"
    assert list(log.parent.glob("torn-*")) == []


@pytest.mark.parametrize("is_whole", [False, True])
def test_damage_at_the_end_is_not_swept_away(line: Line, open_store: Open, path: Path, is_whole: bool) -> None:
    log = log_of(path, "a")
    damage_line(log, "end")
    damaged = log.read_bytes()
    store = open_store()
    with suppress(Damaged):
        store.sweep(line.number, line.whole() if is_whole else line.live())
    assert log.read_bytes() == damaged
    assert list(log.parent.iterdir()) == [log]
