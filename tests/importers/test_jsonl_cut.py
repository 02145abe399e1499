"""A file of `holdfast export` of which a part is missing: what is told is what is there."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Damaged, Holdfast, InvalidArgument
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from, jsonl_file
from tests.crash.bounds import held_to


@pytest.fixture
def lines() -> Iterator[list[bytes]]:
    """Two threads of three checkpoints each."""
    with holdfast.open("memory:") as hf:
        for name in ("a", "b"):
            for step in range(3):
                hf.thread(name).save({"messages": [f"{name} {each}" for each in range(step)]})
                hf.thread(name).latest()
        written = io.BytesIO()
        export_jsonl(hf, written)
        yield written.getvalue().splitlines(keepends=True)


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_is_told_of_a_file_that_was_cut_off_is_there(
    hf: Holdfast, tmp_path: Path, lines: list[bytes], dry_run: bool
) -> None:
    path = tmp_path / "all.jsonl"
    seen: set[tuple[int, int]] = set()
    for end in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:end]))
        with holdfast.open("memory:") as new:
            report = import_from(new, "jsonl", str(path), dry_run=dry_run)
            there = sum(new.thread(info.name).count() for info in new.threads())
        assert not report.ok
        assert "the complete threads were imported" in report.skipped[-1].reason
        assert (report.skipped[-1].thread, report.skipped[-1].item) == (None, f"file {path}")
        assert report.threads <= 2
        if not dry_run:
            assert report.checkpoints == report.checked == there
        seen.add((report.threads, report.checkpoints))
    assert seen == {(0, 0), (1, 3), (2, 6)}


def test_lines_whose_ends_were_changed(hf: Holdfast, tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"".join(lines).replace(b"\n", b"\r\n"))
    with pytest.raises(InvalidArgument, match="its lines end with CR LF"):
        import_from(hf, "jsonl", str(path))


def test_a_file_without_line_breaks_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.truncate(8 << 30)  # a sparse file
    with holdfast.open("memory:") as hf, held_to(256 << 20), pytest.raises(InvalidArgument, match="export"):
        import_from(hf, "jsonl", str(path))


def test_a_line_that_is_too_long_is_damage(tmp_path: Path, lines: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    most = max(map(len, lines))
    monkeypatch.setattr(jsonl_file, "_LINE_MAX", most)
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"".join(lines))
    with holdfast.open("memory:") as hf:
        assert import_from(hf, "jsonl", str(path)).ok
    path.write_bytes(lines[0] + b"x" * most + b"\n")
    with holdfast.open("memory:") as hf, pytest.raises(Damaged, match=f"offset {len(lines[0])} .* longer than {most}"):
        import_from(hf, "jsonl", str(path))
