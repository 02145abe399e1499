"""One line format: an exported thread is a log of a directory store, and a log of a directory store can be imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged, Holdfast
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.stores.log.device import encoded
from tests.stores.log.conftest import damage_line, log_of, records_of
from tests.threads.wholes import opened, seen, state_at

NAME = "Invoice 42"


class Model:
    """A model whose replies differ."""

    def __init__(self, reply: object) -> None:
        self._reply = reply

    def ask(self) -> object:
        return self._reply


def work(hf: Holdfast, name: str = NAME) -> None:
    """A thread with labels, rewinds, deletions, a large value, and a run that waits."""
    thread = hf.thread(name)
    for n in range(1, 6):
        thread.save(state_at(n), step=n, label=f"at {n}" if n % 2 else None)
    thread.rewind("@3")
    thread.save({**state_at(4), "half": "\ud800", "bytes": b"\x00"})
    thread.delete("@2")
    with hf.run(name) as run:
        for _ in run.steps():
            run.model(Model({"text": "a reply"}).ask)
            run.wait("ok?", {"question": (1, 2.5)})


def put_into(folder: Path, data: bytes, name: str = NAME) -> None:
    """Copy an export to the place of a thread's log."""
    place = folder / "default" / "threads" / encoded(name)
    place.mkdir(parents=True, exist_ok=True)
    (place / "log.jsonl").write_bytes(data)


def exported(hf: Holdfast, folder: Path, name: str = NAME) -> bytes:
    path = folder / "it.jsonl"
    assert export_jsonl(hf, str(path), threads=[name]).ok
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_an_exported_thread_is_a_log(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path, "old") as hf, opened("directory", tmp_path, "new") as new:
        hf.thread("first").save({"n": 1})
        work(hf)
        for name in ("a", "b"):
            new.thread(name).save({"n": 1})
        put_into(tmp_path / "new", exported(hf, tmp_path))
        assert seen(new)[NAME] == seen(hf)[NAME]
        assert list(new.waiting()) == list(hf.waiting())
        assert new.verify().ok
        assert list(new.context.store.check()) == []
        # It goes on as the old one would have.
        for each in (hf, new):
            each.answer(NAME, "ok?", 1, early=True)
            with each.run(NAME) as run:
                for _ in run.steps():
                    assert run.model(Model("another").ask) == {"text": "a reply"}
                    run.finish(run.wait("ok?", {"question": (1, 2.5)}))
            each.thread(NAME).save(state_at(7), step=9)
            each.optimize()
            assert each.verify().ok
    with opened("directory", tmp_path, "new") as new:
        latest = new.thread(NAME).latest()
        assert latest is not None
        assert latest.state == state_at(7)


def test_large_values_of_an_exported_thread_outlive_it(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "old") as hf, opened("directory", tmp_path, "new") as new:
        hf.thread(NAME).save(state_at(3))
        put_into(tmp_path / "new", exported(hf, tmp_path))
        new.thread(NAME).fork("fork")
        new.thread(NAME).drop()
        new.optimize()
        new.thread("other").save({"n": 1})
        latest = new.thread("fork").latest()
        assert latest is not None
        assert latest.state == state_at(3)
        assert new.verify().ok


def test_large_values_of_a_newer_export_outlive_it(tmp_path: Path) -> None:
    """It replaces an export of the thread to which this handle has written."""
    with opened("sqlite", tmp_path, "old") as hf, opened("directory", tmp_path, "new") as new:
        hf.thread(NAME).save(state_at(3))
        put_into(tmp_path / "new", exported(hf, tmp_path))
        new.thread(NAME).save({"n": 1})
        hf.thread(NAME).save({"large": "y" * 50_000})
        (tmp_path / "it.jsonl").unlink()
        put_into(tmp_path / "new", exported(hf, tmp_path))
        new.thread(NAME).fork("fork")
        new.thread(NAME).drop()
        new.optimize()
        latest = new.thread("fork").latest()
        assert latest is not None
        assert latest.state == {"large": "y" * 50_000}


def test_a_fork_that_was_copied_keeps_the_cells_of_its_origin(tmp_path: Path) -> None:
    """The store that it is copied into has never heard of it."""
    with opened("directory", tmp_path, "old") as hf:
        hf.thread("origin").save(state_at(4))
        hf.thread("origin").fork("fork").save(state_at(5))
        hf.thread("origin").save({"n": 1})
    with opened("directory", tmp_path, "new") as new:
        new.thread("other").save({"n": 1})
        for name in ("origin", "fork"):
            put_into(tmp_path / "new", log_of(tmp_path / "old", name).read_bytes(), name)
        for blob in (tmp_path / "old" / "default" / "blobs").rglob("*"):
            there = tmp_path / "new" / blob.relative_to(tmp_path / "old")
            there.parent.mkdir(parents=True, exist_ok=True)
            if blob.is_file():
                there.write_bytes(blob.read_bytes())
        new.thread("origin").prune(holdfast.Retention(keep_last=1))
        new.optimize()
        latest = new.thread("fork").latest()
        assert latest is not None
        assert latest.state == state_at(5)
        new.thread("origin").drop()
        new.optimize()
        assert new.verify().ok


def test_an_export_of_several_threads_is_not_a_log(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "old") as hf, opened("directory", tmp_path, "new") as new:
        for name in (NAME, "other"):
            hf.thread(name).save({"n": 1})
        new.thread("mine").save({"n": 1})
        path = tmp_path / "it.jsonl"
        assert export_jsonl(hf, str(path)).ok
        put_into(tmp_path / "new", path.read_bytes())
        with pytest.raises(Damaged, match="several threads"):
            new.thread(NAME).latest()
        latest = new.thread("mine").latest()
        assert latest is not None
        assert latest.state == {"n": 1}


@pytest.mark.parametrize("target", ["memory", "sqlite", "directory"])
def test_a_log_can_be_imported(target: str, tmp_path: Path) -> None:
    with opened("directory", tmp_path, "old") as hf:
        work(hf)
        whole, waiting = seen(hf)[NAME], list(hf.waiting())
    with opened(target, tmp_path, "new") as new:
        report = import_from(new, "jsonl", str(log_of(tmp_path / "old", encoded(NAME))))
        assert report.ok, report
        assert seen(new) == {NAME: whole}
        assert list(new.waiting()) == waiting
        assert new.verify().ok
        again = import_from(new, "jsonl", str(log_of(tmp_path / "old", encoded(NAME))))
        assert (again.ok, again.checkpoints, again.present) == (True, 0, report.checkpoints)


def test_a_log_that_was_rewritten_can_be_imported(tmp_path: Path) -> None:
    with opened("directory", tmp_path, "old") as hf, opened("memory", tmp_path) as new:
        work(hf)
        hf.thread(NAME).prune(holdfast.Retention(keep_last=2))
        hf.optimize()
        assert import_from(new, "jsonl", str(log_of(tmp_path / "old", encoded(NAME)))).ok
        assert seen(new) == seen(hf)


def test_a_run_in_progress_is_halted_in_the_copy(tmp_path: Path) -> None:
    with opened("directory", tmp_path, "old") as hf, opened("memory", tmp_path) as new:
        with hf.run("t", start={"n": 0}) as run:
            run.model(lambda: 1)
            assert import_from(new, "jsonl", str(log_of(tmp_path / "old", "t"))).ok
        assert list(new.interrupted()) == []
        assert [info.status for info in new.threads()] == ["halted"]


def cut(log: Path) -> None:
    """As a kill in the middle of a write leaves it."""
    with log.open("ab") as file:
        file.write(b'{"crc":"00000000","t":"cell","seq":9,"lo')


def flip(log: Path) -> None:
    damage_line(log, "cell", 3)


@pytest.mark.parametrize(("change", "is_ok"), [(cut, True), (flip, False)])
def test_a_log_that_is_torn_is_imported_and_one_that_is_damaged_is_not(
    change: Callable[[Path], None], is_ok: bool, tmp_path: Path
) -> None:
    with opened("directory", tmp_path, "old") as hf:
        work(hf)
        whole = seen(hf)
    log = log_of(tmp_path / "old", encoded(NAME))
    change(log)
    with opened("memory", tmp_path) as new:
        report = import_from(new, "jsonl", str(log))
        assert report.ok is is_ok
        assert seen(new) == (whole if is_ok else {})


def kinds_of(data: Path) -> set[str]:
    return {record["t"] for record in records_of(data)}


def test_the_lines_of_an_export_are_those_of_a_log(tmp_path: Path) -> None:
    """Apart from its first line, the large values in it, and the tombstones of deleted checkpoints."""
    with opened("directory", tmp_path, "old") as hf:
        work(hf)
        exported(hf, tmp_path)
    log = log_of(tmp_path / "old", encoded(NAME))
    own: set[str] = kinds_of(tmp_path / "it.jsonl")
    assert own - kinds_of(log) == {"export", "blob", "tombstone"}
    lines: dict[tuple[Any, ...], Any] = {}
    for path in (log, tmp_path / "it.jsonl"):
        for record in records_of(path):
            if record["t"] in ("cell", "checkpoint"):
                record.pop("crc")
                key = (record["t"], record["seq"], record.get("log"), record.get("at"))
                assert lines.setdefault(key, record) == record
