"""JSON lines: what is exported from any store and imported into any other is there as it was; twice imports once."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Damaged, Holdfast, InvalidArgument, NotFound
from holdfast.errors import NewerFormat
from holdfast.exporters import export_jsonl
from holdfast.formats import lines as ln
from holdfast.importers import Report, import_from
from holdfast.threads.scan import checkpoint_at, thread_named, walked
from holdfast.threads.soundness import Examiner
from tests.covers import covers
from tests.runs.conftest import write_results
from tests.selection import IN_FULL
from tests.stores.log.conftest import resummed
from tests.threads.wholes import CIPHER, KINDS, change_blob, fill, flip, opened, seen, state_at


def export(hf: Holdfast, **which: Any) -> bytes:
    out = io.BytesIO()
    done = export_jsonl(hf, out, **which)
    assert done.ok
    assert done.bytes == len(out.getvalue())
    return out.getvalue()


def bring(hf: Holdfast, folder: Path, data: bytes, **options: Any) -> Report:
    (folder / "it.jsonl").write_bytes(data)
    return import_from(hf, "jsonl", str(folder / "it.jsonl"), **options)


def moves_of(hf: Holdfast, name: str) -> list[tuple[int, Any, bool]]:
    row = thread_named(hf.context.store, name)
    assert row is not None
    rows = [checkpoint_at(hf.context.store, row.position.thread, seq) for seq in range(1, row.position.last + 1)]
    return [(each.move, each.parent is not None and each.parent[1], each.deleted) for each in rows if each is not None]


def runs_of(hf: Holdfast) -> dict[str, Any]:
    """The records of runs, without what is of a process or of a store's own counting."""
    found: dict[str, Any] = {}
    for info in hf.threads():
        # Which branch a checkpoint is of follows from the moves.
        found[f"moves of {info.name}"] = moves_of(hf, info.name)
        row = thread_named(hf.context.store, info.name)
        run = None if row is None else hf.context.store.run(row.position.thread)
        if row is not None and run is not None:
            found[info.name] = (run.status, run.reason, run.branch, run.began, run.closed, run.start, run.result)
            found[info.name] += (run.question, run.handler, run.created_at, run.parent, row.position.move)
    return found


def reply() -> dict[str, Any]:
    return {"text": "a \ud800 b", "data": b"\x00\xff"}


def work(hf: Holdfast) -> None:
    """Runs that ended, wait, are queued, were interrupted, failed and were halted."""

    @holdfast.tool(effect="irreversible")
    def pay(amount: int) -> None:
        raise RuntimeError("nobody knows")

    with hf.run("waits", start={"n": 0}) as run:
        for _ in run.steps():
            run.model(reply)
            run.wait("ok?", {"question": (1, 2.5)})
    with hf.run("doubt", start={"n": 0}, tools=[pay]) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 3})
    hf.submit("handler", "queued", start={"n": 1}, version="v1")
    with contextlib.suppress(ValueError), hf.run("failed", start={"n": 0}) as run:
        for _ in run.steps():
            run.model(lambda: 1)
            raise ValueError("no")
    hf.submit("handler", "halted", start={"n": 1})
    hf.cancel("halted", "not now")
    with hf.run("rewound", start={"n": 0}, policy=holdfast.EveryN(1)) as run:
        for step in run.steps():
            run.state["n"] += run.model(lambda: 1)
            if step == 4:
                break
    hf.thread("rewound").rewind("@1")


@covers("ares/serialize_state", "ares/restore_checkpoint", "smooth/Checkpoint.to_bytes", "smooth/Checkpoint.from_bytes")
@covers("cortex/Checkpoint serialized")
# `make test` has each kind of store once on either side.
@pytest.mark.parametrize(
    ("kind", "target"),
    list(itertools.product(KINDS, KINDS) if IN_FULL else zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True)),
)
def test_everything_comes_back(kind: str, target: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf, opened(target, tmp_path, "new") as new:
        fill(hf)
        work(hf)
        report = bring(new, tmp_path, export(hf))
        assert report.ok
        assert (report.present, report.checked) == (0, report.checkpoints)
        assert seen(new) == seen(hf)
        assert runs_of(new) == runs_of(hf)
        assert list(new.waiting()) == list(hf.waiting())
        assert new.verify().ok
        # It goes on as the old one would have.
        for each in (hf, new):
            each.answer("waits", "ok?", 1, early=True)
            with each.run("waits") as run:
                for _ in run.steps():
                    assert run.model(reply)["data"] == b"\x00\xff"
                    run.finish(run.wait("ok?", {"question": (1, 2.5)}))
            assert run.result == 1
            assert each.thread("t").save(state_at(4)).seq == 10
            each.optimize()
            assert each.verify().ok


@pytest.mark.parametrize("kind", KINDS)
def test_twice_imports_once(kind: str, tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf, opened(kind, tmp_path, "new") as new:
        fill(hf)
        work(hf)
        data = export(hf)
        first = bring(new, tmp_path, data)
        before = seen(new), runs_of(new)
        again = bring(new, tmp_path, data)
        assert again.ok
        assert (again.checkpoints, again.writes, again.present) == (0, 0, first.checkpoints)
        assert (seen(new), runs_of(new)) == before
        # What was done since stays.
        new.thread("t").save({"later": True})
        new.thread("fork").rewind("@-2")
        position = new.thread("fork").head()
        assert bring(new, tmp_path, data).ok
        latest = new.thread("t").latest()
        assert latest is not None
        assert latest.state == {"later": True}
        assert new.thread("fork").head() == position


@covers("cortex/EncryptedSessionStoreWrapper of old data")
@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
@pytest.mark.parametrize("other", [None, CIPHER], ids=["to plain", "to encrypted"])
def test_encrypted_stores(cipher: Any, other: Any, tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, cipher=cipher) as hf, opened("directory", tmp_path, "new", other) as new:
        fill(hf)
        work(hf)
        data = export(hf)
        assert bring(new, tmp_path, data).ok
        assert seen(new) == seen(hf)
        assert runs_of(new) == runs_of(hf)
        assert new.verify().ok
        assert bring(new, tmp_path, data).ok


@covers("G8", "continuum/ChecksumUtils canonical")
def test_digests_stay_where_nothing_names_another_thread(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf, opened("directory", tmp_path, "new") as new:
        fill(hf)
        bring(new, tmp_path, export(hf))
        for name in ("t", "run"):
            found = [[c.digest for c in each.thread(name).history()] for each in (hf, new)]
            assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_alone_brings_the_cells_it_needs_and_no_others(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf, opened("sqlite", tmp_path, "new") as new:
        fill(hf)
        hf.thread("t").save({"secret": "only of the origin " * 9})
        data = export(hf, threads=["fork", "orphan"])
        assert b"only of the origin" not in data
        assert bring(new, tmp_path, data).ok
        assert seen(new) == {name: told for name, told in seen(hf).items() if name in ("fork", "orphan")}
        new.optimize()
        assert new.verify().ok
        assert seen(new) == {name: told for name, told in seen(hf).items() if name in ("fork", "orphan")}
        assert bring(new, tmp_path, data).ok
        assert [info.name for info in new.threads()] == ["fork", "orphan"]


def test_a_prefix(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as hf, opened("memory", tmp_path) as new:
        for name in ("a/1", "a/2", "b"):
            hf.thread(name).save({"name": name})
        bring(new, tmp_path, export(hf, prefix="a/"))
        assert [info.name for info in new.threads()] == ["a/1", "a/2"]


@pytest.mark.parametrize("kind", KINDS)
def test_cut_off_anywhere_it_goes_on(kind: str, tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
        work(hf)
        data = export(hf)
        whole = seen(hf), runs_of(hf)
    with opened(kind, tmp_path, "new") as new:
        for end in sorted(random.Random(7).sample(range(data.index(b"\n") + 1, len(data)), 12)):
            report = bring(new, tmp_path, data[:end])
            assert not report.ok
            assert any("the file is cut off" in each.reason for each in report.skipped)
        assert bring(new, tmp_path, data).ok
        assert (seen(new), runs_of(new)) == whole
        assert new.verify().ok


def _undated(hf: Holdfast) -> dict[str, Any]:
    """What can be seen, but when a thread was last changed: that of its run, where rewinds had to be made behind it."""
    never = datetime.fromtimestamp(0, UTC)
    return {name: (replace(told[0], updated_at=never), *told[1:]) for name, told in seen(hf).items()}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "directory"])
def test_stopped_at_any_write_it_goes_on(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each verb that writes is the last one once; what was there then is gone on with."""
    with opened("memory", tmp_path) as hf:
        hf.thread("t").save(state_at(2))
        hf.thread("t").save(state_at(3))
        hf.thread("t").fork("fork", at="@1")
        hf.thread("t").delete("@1")
        hf.thread("gone").save(state_at(3))
        hf.thread("gone").fork("orphan").save(state_at(4))
        hf.thread("gone").drop()
        with hf.run("r", start={"n": 0}, policy=holdfast.EveryN(1)) as run:
            for step in run.steps():
                run.model(lambda: 1)
                if step == 3:
                    break
        hf.thread("r").rewind("@1")
        hf.submit("handler", "queued and rewound", start={"n": 1})
        hf.thread("queued and rewound").rewind("@0")
        data = export(hf)
        whole = _undated(hf), runs_of(hf)
    number = 0
    while True:
        number += 1
        with opened(kind, tmp_path, f"new {number}") as new:
            left = number

            def stopping(verb: Any) -> Any:
                def stopped(*args: Any, **kwargs: Any) -> Any:
                    nonlocal left
                    left -= 1
                    if left == 0:
                        raise KeyboardInterrupt
                    return verb(*args, **kwargs)

                return stopped

            with monkeypatch.context() as patch:
                for verb in ("commit", "rewind", "delete", "claim", "drop"):
                    patch.setattr(new.context.store, verb, stopping(getattr(new.context.store, verb)))
                with contextlib.suppress(KeyboardInterrupt):
                    bring(new, tmp_path, data)
            was_stopped = left <= 0
            assert bring(new, tmp_path, data).ok
            assert (_undated(new), runs_of(new)) == whole
            assert new.verify().ok
        if not was_stopped:
            break
    assert number > 7


def test_a_run_that_somebody_holds_waits_for_a_person(tmp_path: Path) -> None:
    """Or both would act: the one that was exported, and its copy."""
    with opened("sqlite", tmp_path) as hf, opened("sqlite", tmp_path, "new") as new:
        with hf.run("t", start={"n": 0}) as run:
            run.model(lambda: 1)
            write_results(run)
            data = export(hf)
        bring(new, tmp_path, data)
        assert list(new.interrupted()) == []
        row = thread_named(new.context.store, "t")
        assert row is not None
        stored = new.context.store.run(row.position.thread)
        assert stored is not None
        assert stored.status == "halted"
        assert "at the time of the export" in (stored.reason or "")
        with new.run("t") as run:
            assert run.model(lambda: 2) == 1


def test_another_thread_of_that_name_is_left_alone(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf, opened("sqlite", tmp_path, "new") as new:
        fill(hf)
        new.thread("t").save({"mine": True})
        report = bring(new, tmp_path, export(hf))
        told = {each.thread: each.reason for each in report.skipped}
        assert "a different thread with this name exists" in told["t"]
        assert "forked from a thread that was not imported" in told["fork"]
        latest = new.thread("t").latest()
        assert latest is not None
        assert latest.state == {"mine": True}
        assert [info.name for info in new.threads()] == ["orphan", "run", "t"]
        assert new.verify().ok


def test_an_older_copy_is_gone_on_with_or_told(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf, opened("sqlite", tmp_path, "new") as new:
        hf.thread("t").save(state_at(1))
        with hf.run("r", start={"n": 0}) as run:
            next(iter(run.steps()))
        bring(new, tmp_path, export(hf))
        hf.thread("t").save(state_at(2))
        with hf.run("r") as run:
            for _ in run.steps():
                run.finish(1)
        report = bring(new, tmp_path, export(hf))
        assert [(each.thread, "older copy" in each.reason) for each in report.skipped] == [("r", True)]
        assert seen(new)["t"] == seen(hf)["t"]


def test_threads_that_exist_can_be_replaced(tmp_path: Path) -> None:
    """Also a different one, and one that continued here. Forks that were made here stay."""
    with opened("sqlite", tmp_path) as hf, opened("sqlite", tmp_path, "new") as new:
        fill(hf)
        data = export(hf)
        assert bring(new, tmp_path, data).ok
        new.thread("t").latest()
        new.thread("t").save({"mine": True})
        new.thread("t").fork("kept")
        new.thread("orphan").drop()
        new.thread("orphan").save({"different": True})
        skipped = bring(new, tmp_path, data)
        assert (skipped.checkpoints, [each.thread for each in skipped.skipped]) == (0, ["orphan"])
        rehearsed = bring(new, tmp_path, data, replace=True, dry_run=True)
        report = bring(new, tmp_path, data, replace=True)
        assert (report.existing, report.ok, rehearsed.checkpoints) == (0, True, report.checkpoints)
        assert new.thread("kept").latest().state == {"mine": True}  # type: ignore[union-attr]
        new.thread("kept").drop()
        assert _undated(new) == _undated(hf)
        assert new.verify().ok


def test_a_damaged_thread_replaces_nothing(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf, opened("sqlite", tmp_path, "new") as new:
        hf.thread("t").save(state_at(3))
        hf.thread("t").save(state_at(4))
        data = export(hf)
        new.thread("t").save({"mine": True})
        lines = data.splitlines(keepends=True)
        at = next(number for number, line in enumerate(lines) if b"message 2" in line)
        lines[at] = ln.reseal(b"{" + lines[at][ln.PREFIX : -1].replace(b"message 2", b"message 7"))
        for changed in (data.replace(b"message 2", b"message 7"), resummed(b"".join(lines))):
            for dry_run in (True, False):
                assert not bring(new, tmp_path, changed, replace=True, dry_run=dry_run).ok
        assert new.thread("t").latest().state == {"mine": True}  # type: ignore[union-attr]


def test_damage_is_left_out_and_told(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
    change_blob(tmp_path / "store.db", "checkpoint", "skeleton", "row_key & 4294967295 = 8", flip)
    with opened("sqlite", tmp_path) as hf, opened("sqlite", tmp_path, "new") as new:
        out = io.BytesIO()
        done = export_jsonl(hf, out)
        assert not done.ok
        assert {each.thread for each in done.left_out} == {"t"}
        assert bring(new, tmp_path, out.getvalue()).ok
        assert [info.name for info in new.threads()] == ["fork", "orphan", "run"]
        assert new.verify().ok


def test_a_changed_byte_is_never_imported(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as hf:
        fill(hf)
        data, whole = export(hf), seen(hf)
    random_ = random.Random(3)
    for _ in range(60):
        at = random_.randrange(len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << random_.randrange(8)
        with opened("memory", tmp_path) as new:
            try:
                report = bring(new, tmp_path, bytes(changed))
            except (InvalidArgument, Damaged, NewerFormat):
                assert at < data.index(b"\n")
                continue
            assert not report.ok
            assert new.verify().ok
            for info in new.threads():
                if info.name not in {each.thread for each in report.skipped}:
                    assert seen(new)[info.name] == whole[info.name]


def test_a_line_that_somebody_wrote_anew_does_not_fit_the_digest(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as hf:
        fill(hf)
        lines = export(hf).splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if b"message 1 " in line)
    with opened("memory", tmp_path) as new:
        assert bring(new, tmp_path, resummed(b"".join(lines))).ok  # the same again is the same
    lines[at] = ln.reseal(b"{" + lines[at][ln.PREFIX : -1].replace(b"message 1 ", b"message 9 "))
    with opened("memory", tmp_path) as new:
        told = {each.thread: each.reason for each in bring(new, tmp_path, resummed(b"".join(lines))).skipped}
        assert "does not match its digest" in told["t"]
        assert "t" not in {info.name for info in new.threads()}
        assert new.verify().ok


def test_lines_that_are_missing_are_missed(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as hf:
        fill(hf)
        lines = export(hf).splitlines(keepends=True)
    kinds = [json.loads(line)["t"] for line in lines]
    for at in range(1, len(lines)):
        if not IN_FULL and at % 4 and kinds.index(kinds[at]) != at:
            continue  # a share, and the first of each kind
        with opened("memory", tmp_path) as new:
            assert not bring(new, tmp_path, b"".join(lines[:at] + lines[at + 1 :])).ok, lines[at][:80]
            assert new.verify().ok


@covers("ares/restore_checkpoint.empty", "ares/restore_checkpoint.invalid")
def test_what_is_newer_or_something_else_is_refused(tmp_path: Path) -> None:
    newer = ln.ExportLine(format=ln.FORMAT + 1, id="x", made=0, namespace="default")
    with opened("memory", tmp_path) as new:
        with pytest.raises(NewerFormat, match="Upgrade Holdfast"):
            bring(new, tmp_path, ln.sealed(newer)[1])
        for other in (b"", b"{}\n", b"\x00" * 99, b'{"crc":"00000000","t":"end"}\n'):
            with pytest.raises(InvalidArgument, match="was not written by"):
                bring(new, tmp_path, other)
        with pytest.raises(NotFound):
            import_from(new, "jsonl", str(tmp_path / "none"))
        assert not list(new.threads())


def test_a_dry_run_stores_nothing(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as hf, opened("memory", tmp_path) as new:
        fill(hf)
        (tmp_path / "it.jsonl").write_bytes(export(hf))
        for target in (new, None):
            report = import_from(target, "jsonl", str(tmp_path / "it.jsonl"), dry_run=True)
            assert report.ok
            assert (report.threads, report.checkpoints, report.writes) == (4, 12, 3)
        assert not list(new.threads())


def _many(hf: Holdfast) -> None:
    thread = hf.thread("t")
    for number in range(5):
        thread.save({"messages": [f"{number}-{each}" * 100 for each in range(20)]})


def test_a_thread_that_is_dropped_while_it_is_read_is_not_reported_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = holdfast.open(tmp_path / "a.db")
    _many(hf)

    class Meanwhile(Examiner):
        def thread(self, number: int) -> Iterator[Any]:
            for each in super().thread(number):
                with contextlib.suppress(NotFound):
                    hf.thread("t").drop()
                yield each

    monkeypatch.setattr("holdfast.exporters.jsonl.Examiner", Meanwhile)
    with pytest.raises(NotFound, match="'t' was dropped meanwhile"):
        export_jsonl(hf, tmp_path / "export.jsonl")

    assert not (tmp_path / "export.jsonl").exists()
    hf.close()


def test_an_export_of_a_thread_that_is_pruned_while_it_is_written_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = holdfast.open(tmp_path / "a.db")
    _many(hf)

    def meanwhile(*args: Any) -> Iterator[Any]:
        rows = [*walked(*args)]
        hf.thread("t").prune(holdfast.Retention(keep_last=1))
        yield from rows

    monkeypatch.setattr("holdfast.exporters.jsonl.walked", meanwhile)
    with pytest.raises(holdfast.HoldfastError, match="'t' was changed while it was read") as stopped:
        export_jsonl(hf, tmp_path / "export.jsonl")

    assert not isinstance(stopped.value, Damaged)
    assert not (tmp_path / "export.jsonl").exists()
    hf.close()
