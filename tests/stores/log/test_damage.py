"""Damage in the middle of a log: it hurts what needs those bytes, it is named with file and offset, and it stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.errors import Damaged
from holdfast.stores.contract import Live
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import FAR, effect, journaled, running, saved, texts_of, value
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.crash.lab import spread
from tests.selection import tries
from tests.stores.log.conftest import Open, damage_line, log_of

WHERE = r"log\.jsonl: \d+ bytes at offset {} are damaged"


def state(n: int) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": f"message {at} " * 300} for at in range(n)], "step": n}


def test_lines_of_two_threads_that_changed_places_are_noticed(path: Path) -> None:
    """Their records are equal in kind, number and position, so only the end of each group shows whose lines it has."""
    expected = {name: [{"messages": [f"{name} {at} " * 300 for at in range(n)]} for n in range(1, 5)] for name in "ab"}
    with holdfast.open(f"dir:{path}", durability="off") as opened:
        for name, states in expected.items():
            for each in states:
                opened.thread(name).save(each)
    logs = [log_of(path, name) for name in "ab"]
    lines = [log.read_bytes().splitlines(keepends=True) for log in logs]
    assert len(lines[0]) == len(lines[1])
    hurt = 0
    for at in range(len(lines[0])):
        for log, own, others in zip(logs, lines, reversed(lines), strict=True):
            log.write_bytes(b"".join([*own[:at], others[at], *own[at + 1 :]]))
        try:
            with holdfast.open(f"dir:{path}", durability="off") as opened:
                for name, states in expected.items():
                    latest = opened.thread(name).latest()
                    assert latest is not None
                    assert latest.state == states[-1]
                    for checkpoint in opened.thread(name).history():
                        assert opened.thread(name).load(checkpoint).state == states[checkpoint.seq - 1]
        except Damaged:
            hurt += 1
    assert hurt == len(lines[0])


@pytest.fixture
def hf(path: Path) -> Iterator[Holdfast]:
    with holdfast.open(f"dir:{path}", durability="off") as opened:
        for n in range(1, 7):
            opened.thread("t").save(state(n), step=n)
            opened.thread("other").save(state(n), step=n)
    with holdfast.open(f"dir:{path}", durability="off") as opened:
        yield opened


@covers("ares/CheckpointError.display")
def test_a_damaged_cell_hurts_the_checkpoints_that_name_it(hf: Holdfast, path: Path) -> None:
    offset = damage_line(log_of(path, "t"), "cell", 3)
    thread = hf.thread("t")
    for checkpoint in thread.history():
        if checkpoint.seq < 4:
            assert thread.load(checkpoint.id).state == state(checkpoint.seq)
        else:
            with pytest.raises(Damaged, match=WHERE.format(offset)):
                thread.load(checkpoint.id)
    with pytest.raises(Damaged):
        thread.latest()
    fallback = thread.latest(fallback=True)
    assert fallback is not None
    assert fallback.state == state(3)
    latest = hf.thread("other").latest()
    assert latest is not None
    assert latest.state == state(6)
    report = hf.verify()
    assert {problem.thread for problem in report.problems} == {"t"}
    assert any(str(offset) in problem.what for problem in report.problems)
    hf.close()


@covers("A6", "ares/CheckpointError.Corrupt")
@pytest.mark.parametrize("seq", [3, 6])
def test_a_damaged_checkpoint_hurts_itself(hf: Holdfast, path: Path, seq: int, request: pytest.FixtureRequest) -> None:
    ids = ids_of(hf)
    hf = reopened(hf, path)
    request.addfinalizer(hf.close)
    thread = hf.thread("t")
    offset = damage_line(log_of(path, "t"), "checkpoint", seq - 1)
    for n in range(1, 7):
        if n == seq:
            with pytest.raises(Damaged, match=str(offset)):
                thread.load(ids[n])
        else:
            assert thread.load(ids[n]).state == state(n)
    if seq == 6:
        with pytest.raises(Damaged):
            thread.latest()
    else:
        latest = thread.latest()
        assert latest is not None
        assert latest.state == state(6)
    hf.close()


def ids_of(hf: Holdfast) -> dict[int, str]:
    return {checkpoint.seq: checkpoint.id for checkpoint in hf.thread("t").history()}


def reopened(hf: Holdfast, path: Path) -> Holdfast:
    hf.close()
    return holdfast.open(f"dir:{path}", durability="off")


def test_a_damaged_end_in_the_middle_hurts_nothing(hf: Holdfast, path: Path, request: pytest.FixtureRequest) -> None:
    ids = ids_of(hf)
    hf = reopened(hf, path)
    request.addfinalizer(hf.close)
    damage_line(log_of(path, "t"), "end", 2)
    thread = hf.thread("t")
    for n in range(1, 7):
        assert thread.load(ids[n]).state == state(n)
    latest = thread.latest()
    assert latest is not None
    assert latest.state == state(6)
    assert not hf.verify().ok
    thread.save(state(7), step=7)
    hf.close()


@covers("A10")
def test_a_flipped_byte_anywhere_is_never_a_wrong_state(hf: Holdfast, path: Path) -> None:
    log = log_of(path, "t")
    whole = log.read_bytes()
    hf.close()
    for at in spread(range(0, len(whole), 13), tries(len(whole), 50)):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with holdfast.open(f"dir:{path}", durability="off") as opened:
            thread = opened.thread("t")
            try:
                latest = thread.latest()
                assert latest is not None
                assert latest.state == state(6), f"byte {at}"
            except Damaged:
                pass
            assert not opened.verify().ok, f"byte {at} changed, and nobody noticed"


def test_a_damaged_run_record_is_not_taken_for_the_one_before_it(
    store: DirectoryStore, open_store: Open, path: Path
) -> None:
    line, row = running(store)
    store.renew(line.number, row.fence, row.lease_until + 10)
    damage_line(log_of(path, "a"), "run")
    other = open_store()
    with pytest.raises(Damaged):
        other.run(line.number)
    line.store = other
    with pytest.raises(Damaged):
        line.save("y")
    assert texts_of(other, line.span()) == [["x"]]


def test_a_damaged_first_line_leaves_the_run_that_created_the_thread(path: Path) -> None:
    with holdfast.open(f"dir:{path}", durability="off") as hf, hf.run("a", start={"n": 0}) as run:
        for _ in run.steps():
            run.state["n"] = 1
            run.finish("done")
    damage_line(log_of(path, "a"), "thread")
    with holdfast.open(f"dir:{path}", durability="off") as hf:
        latest = hf.thread("a").latest()
        assert latest is not None
        assert latest.state == {"n": 1}
        info = hf.run_info("a")
        assert info is not None
        assert info.status == "completed"
        assert not hf.verify().ok


def test_a_damaged_journal_entry_is_missed(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line, row = running(store)
    for _ in range(3):
        journaled(store, line.number, row.fence, [effect()])
    damage_line(log_of(path, "a"), "entry", 1)
    other = open_store()
    assert len(other.entries(line.number, after=2, limit=9)) == 1
    with pytest.raises(Damaged, match="journal entry 2"):
        other.entries(line.number, after=0, limit=9)
    assert other.last_entry(line.number) == 3


def test_a_compaction_copies_what_it_cannot_read(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line = saved(store, "a", *(f"{n}" for n in range(10)))
    log = log_of(path, "a")
    offset = damage_line(log, "cell", 4)
    broken = log.read_bytes()[offset:].split(b"\n")[0]
    other = open_store()
    done = other.sweep(line.number, line.whole(line.span(5)))
    assert (done.damaged, done.dropped) == (1, 4)
    assert broken in log.read_bytes()
    assert texts_of(open_store(), line.span(5)) == [[f"{n}" for n in range(5, 10)]]
    [problem] = open_store().check()
    assert re.search(r"log\.jsonl: \d+ bytes at offset \d+ are damaged", problem.what)


def test_a_lost_run_record_stays_lost_when_the_log_is_rewritten(
    store: DirectoryStore, open_store: Open, path: Path
) -> None:
    line, row = running(store)
    store.renew(line.number, row.fence, row.lease_until + 10)
    damage_line(log_of(path, "a"), "run")
    other = open_store()
    other.sweep(line.number, Live((), FAR, frozenset()))
    with pytest.raises(Damaged):
        open_store().run(line.number)


def test_a_damaged_value_is_never_handed_out(store: DirectoryStore, path: Path) -> None:
    shared = value(b"a large prompt")
    line = saved(store, "a")
    line.save("x", blobs=[shared])
    [file] = (path / "default" / "blobs").rglob(shared.digest.hex())
    assert file.read_bytes() == b"a large prompt"
    file.write_bytes(b"a large prompT")
    with pytest.raises(Damaged, match=shared.digest.hex()):
        store.blob(shared.digest)


def test_a_copied_folder_is_told_and_not_followed(store: DirectoryStore, open_store: Open, path: Path) -> None:
    saved(store, "a", "x")
    copy = log_of(path, "b")
    copy.parent.mkdir()
    copy.write_bytes(log_of(path, "a").read_bytes())
    other = open_store()
    assert [row.name for row in other.threads(prefix="", after=None, limit=9)] == ["a"]
    with pytest.raises(Damaged, match="another thread"):
        thread_named(other, "b")
    assert any("copy" in problem.what or "name of another" in problem.what for problem in other.check())


def test_a_damaged_head_is_returned_with_its_thread(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line = saved(store, "a", "x", "y")
    before = line.stored()
    damage_line(log_of(path, "a"), "checkpoint")
    head = open_store().head("a")
    assert head is not None
    assert head.thread == before
    assert isinstance(head.checkpoint, Damaged)
    assert re.search(WHERE.format(r"\d+"), str(head.checkpoint))


def test_a_handle_that_has_read_a_thread_still_has_its_name_when_the_first_line_is_damaged(
    store: DirectoryStore, open_store: Open, path: Path
) -> None:
    """The folder has the name, too."""
    line, _ = running(store, "main")
    assert open_store().head("main") is not None
    damage_line(log_of(path, "main"), "thread")
    for reader in (store, open_store()):
        assert [each.name for each in reader.threads(prefix="", after=None, limit=9)] == ["main"]
        assert [name for name, _ in reader.runs(statuses={"running"}, after=(0, 0), limit=9)] == ["main"]
        assert [row.seq for row in reader.checkpoints(line.number, before=None, limit=9)] == [1]
