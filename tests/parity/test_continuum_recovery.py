"""Continuum's atomic writes, checksums, crash recovery and interrupted sessions, by Holdfast's verbs."""

from __future__ import annotations

import io
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged, Holdfast, NewerFormat, NotFound
from holdfast.cli.main import main
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.stores.directory import files
from tests.parity.covering import covers
from tests.parity.damaging import damage, file_address
from tests.parity.processes import Start
from tests.runs.conftest import World

in_files = pytest.mark.parametrize("kind", ["sqlite", "directory"])


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    return code, capsys.readouterr().out


# -- writing to the disk ----------------------------------------------------------------------------------------------


@covers(
    "continuum", "AtomicFileWriter.new", "AtomicFileWriter.write_atomic", "AtomicFileWriter leftovers", "layout of text"
)
@in_files
def test_what_was_acknowledged_survives_a_kill_whole_and_the_next_process_goes_on(
    kind: str, tmp_path: Path, start: Start
) -> None:
    address = file_address(kind, tmp_path)
    reached = 0
    for _ in range(3):
        child = start("saving", store=address)
        child.wait_for(6)
        child.kill()
        assert child.failure is None
        acknowledged = int(child.lines[-1])
        with holdfast.open(address, durability="off") as hf:
            latest = hf.thread("t").latest()
            assert latest is not None
            assert latest.step in (acknowledged, acknowledged + 1)  # the one under way is there or not, whole
            assert latest.step > reached
            assert [message["step"] for message in latest.state["messages"]] == list(range(1, latest.step + 1))
            assert hf.verify().ok
            reached = latest.step


@covers("continuum", "AtomicFileWriter.with_sync")
def test_whether_a_save_waits_for_the_disk_is_a_choice_and_it_does_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = files._fdatasync

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(files, "_fdatasync", sync)
    waits: dict[str, int] = {}
    choices: dict[str, dict[str, Any]] = {"off": {"durability": "off"}, "full": {"durability": "full"}, "default": {}}
    for name, choice in choices.items():
        with holdfast.open(f"dir:{tmp_path}/{name}", **choice) as hf:
            thread = hf.thread("t")
            thread.save({"n": 1})
            synced.clear()
            thread.save({"n": 2})
            waits[name] = len(synced)
    assert waits == {"off": 0, "full": 1, "default": 1}


@covers("continuum", "AtomicFileWriter.with_verify", "ChecksumUtils.add_checksum", "ChecksumUtils.verify_checksum")
@in_files
def test_what_was_written_is_checked_when_it_is_asked_for_and_whenever_it_is_read(kind: str, tmp_path: Path) -> None:
    address = file_address(kind, tmp_path)
    with holdfast.open(address, durability="off") as hf:
        saved = hf.thread("t").save({"said": "a word of some length"})
        assert len(bytes.fromhex(saved.digest)) == 32
        assert hf.verify().ok
    damage(address, "t", seq=1)
    with holdfast.open(address, durability="off") as hf:
        assert not hf.verify().ok
        for read in (hf.thread("t").latest, lambda: hf.thread("t").load(saved.id)):
            with pytest.raises(Damaged):
                read()


@covers("continuum", "AtomicFileWriter.safe_remove")
def test_removing_what_is_not_there_is_told_and_changes_nothing(hf: Holdfast) -> None:
    hf.thread("other").save({"n": 1})
    hf.thread("t").save({"n": 1})
    hf.thread("t").drop()
    assert hf.thread("t").latest() is None
    with pytest.raises(NotFound):
        hf.thread("t").drop()
    assert [info.name for info in hf.threads()] == ["other"]


@covers("continuum", "ChecksumUtils canonical")
def test_the_same_content_has_the_same_checksum_in_every_store(url: str, tmp_path: Path) -> None:
    state = {"cost": 0.1 + 0.2, "small": 5e-324, "text": "é\u2028", "items": [{"b": 1, "a": 2}] * 100}
    with holdfast.open(url, durability="off") as hf:
        for n in range(3):
            hf.thread("t").save({**state, "n": n}, expect=holdfast.ANY)
        digests = [each.digest for each in hf.thread("t").history()]
        written = io.BytesIO()
        assert export_jsonl(hf, written).ok
    (tmp_path / "it.jsonl").write_bytes(written.getvalue())
    with holdfast.open("memory:") as hf:
        import_from(hf, "jsonl", str(tmp_path / "it.jsonl"))
        assert [each.digest for each in hf.thread("t").history()] == digests
        assert hf.verify().ok


@covers("continuum", "ChecksumUtils version")
@in_files
def test_a_format_that_is_newer_is_refused_by_name_and_left_as_it_is(kind: str, tmp_path: Path) -> None:
    address = file_address(kind, tmp_path)
    with holdfast.open(address, durability="off") as hf:
        hf.thread("t").save({"n": 1})
    if kind == "sqlite":
        with closing(sqlite3.connect(address)) as later:
            later.execute("PRAGMA user_version = 99")
    else:
        (tmp_path / "store" / "holdfast.json").write_text('{"holdfast":"directory","format":99}')
    with pytest.raises(NewerFormat, match="Upgrade"):
        holdfast.open(address)


# -- after a crash ----------------------------------------------------------------------------------------------------


@covers(
    "continuum",
    "CrashRecovery.new",
    "CrashRecovery.detect_unclean_shutdown",
    "CrashInfo.session_id",
    "CrashInfo.last_iteration",
    "CrashInfo.last_activity",
    "SessionRecovery.new",
    "SessionRecovery.render_interrupted",
    "InterruptedSession.session_id",
    "InterruptedSession.last_iteration",
    "InterruptedSession.last_activity",
    "InterruptedSession.task_description",
)
@in_files
def test_a_killed_process_is_noticed_with_where_it_was_when_and_at_what(
    kind: str, tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    address, before = file_address(kind, tmp_path), datetime.now(UTC)
    child = start("working", store=address, thread="a1b2c3d4", task="count the books", steps=2)
    child.wait_for(1)
    with holdfast.open(address, durability="off") as hf:
        assert list(hf.interrupted()) == []  # its process is alive
        child.kill()
        assert child.failure is None
        [found] = hf.interrupted()
        assert (found.thread, found.step) == ("a1b2c3d4", 2)
        assert before <= found.since <= datetime.now(UTC)
        head = hf.thread(found.thread).latest()
        assert head is not None
        assert head.state == {"task": "count the books", "done": ["reply 1", "reply 2"]}
        assert found.would == "resume after step 2; answer 1 calls from the journal"
    code, shown = said(capsys, "interrupted", "--store", address)
    assert code == 0
    assert "a1b2c3d4" in shown
    assert "step 2" in shown
    with holdfast.open(address, durability="off") as hf, hf.run("a1b2c3d4") as run:
        assert run.resumed
        assert run.model(lambda: "paid for twice") == "reply 3"
        run.finish("counted")
    assert said(capsys, "interrupted", "--store", address) == (0, "")


@covers("continuum", "SessionRecovery.detect_interrupted_sessions", "CrashRecovery after a clean end")
def test_all_that_were_interrupted_are_listed_and_none_that_ended(world: World) -> None:
    hf = world.open()
    for name in ("first", "second", "third"):
        with world.dying(name, hf, start={}) as run:
            run.save()
    with world.running("done", hf, ends="completed", start={}) as run:
        run.finish()
    with world.running("left", hf, start={}):
        pass
    with world.failing("failed", ValueError, hf, start={}):
        raise ValueError("no")
    assert sorted(found.thread for found in world.open().interrupted()) == ["first", "second", "third"]
    hf.thread("never run").save({"n": 1})
    assert sorted(found.thread for found in world.open().interrupted()) == ["first", "second", "third"]


@covers("continuum", "CrashRecovery of an empty store")
def test_an_empty_store_has_no_interrupted_sessions(hf: Holdfast) -> None:
    assert list(hf.interrupted()) == []


@covers("continuum", "CrashRecovery.mark_session_active")
def test_a_session_that_is_worked_on_says_so_and_is_nobody_elses(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}):
        assert [info.status for info in hf.threads()] == ["running"]
        assert list(hf.interrupted()) == []
        with pytest.raises(holdfast.LeaseHeld), world.open().run("t"):
            pytest.fail("two work on it")
    assert [info.status for info in hf.threads()] == ["idle"]


@covers("continuum", "CrashRecovery.mark_session_terminated")
def test_a_session_ends_for_a_reason_that_is_kept(url: str) -> None:
    with holdfast.open(url, durability="off") as hf:
        with hf.run("halted", start={}) as run:
            run.halt("out of paper")
        with hf.run("cancelled", start={}):
            pass
        hf.cancel("cancelled", "not needed any more")
        with pytest.raises(ValueError, match="ink"), hf.run("failed", start={}):
            raise ValueError("no ink")
        hf.thread("by hand").save({}, status="halted", reason="the user left")
        assert list(hf.interrupted()) == []
        by_hand = hf.thread("by hand").head()
        assert by_hand is not None
        assert (by_hand.status, by_hand.reason) == ("halted", "the user left")
        assert ended(hf, "halted") == ("halted", "out of paper")
        assert ended(hf, "cancelled") == ("halted", "not needed any more")
        assert ended(hf, "failed") == ("failed", "ValueError: no ink")
        assert hf.run_info("by hand") is None


def ended(hf: Holdfast, thread: str) -> tuple[str, str | None]:
    info = hf.run_info(thread)
    assert info is not None
    assert not info.interrupted
    return info.status, info.reason


@covers(
    "continuum",
    "CrashRecovery.recover_session",
    "RecoveryResult.checkpoint_path",
    "RecoveryResult.data",
    "RecoveryResult.recovered_from_backup",
)
@in_files
def test_a_session_goes_on_from_the_newest_valid_checkpoint_and_says_what_it_passed_over(
    kind: str, tmp_path: Path
) -> None:
    address = file_address(kind, tmp_path)
    with holdfast.open(address, durability="off") as hf:
        saved = [hf.thread("t").save({"said": f"word {n}"}, expect=holdfast.ANY) for n in range(1, 6)]
        whole = hf.thread("t").latest(fallback=True)
        assert whole is not None
        assert (whole.id, whole.skipped) == (saved[-1].id, ())
    for seq in (5, 4):
        damage(address, "t", seq=seq)
    with holdfast.open(address, durability="off") as hf:
        with pytest.raises(Damaged):
            hf.thread("t").latest()  # never an older state that looks like the newest
        found = hf.thread("t").latest(fallback=True)
        assert found is not None
        assert (found.id, found.state) == (saved[2].id, {"said": "word 3"})
        assert [each.seq for each in found.skipped] == [5, 4]
        assert all(each.why for each in found.skipped)
