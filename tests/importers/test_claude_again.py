"""Transcripts that are imported again: after it was stopped, after the session went on, or for no reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.importers import import_from
from tests.importers.claude_source import whole, write_project
from tests.importers.claude_threads import KIND, lineage, steps, taken, written


@pytest.fixture
def hf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path_factory.mktemp("store") / "agent.db", durability="off") as handle:
        yield handle


def test_twice_imports_once(tmp_path: Path, hf: Holdfast) -> None:
    path = write_project(tmp_path)
    first = taken(hf, path)
    before = {row.name: steps(hf, row.name) for row in hf.threads()}

    again = taken(hf, path)

    assert first.checkpoints == 19
    assert (again.checkpoints, again.existing, again.present) == (0, 4, 19)
    assert again.ok
    assert {row.name: steps(hf, row.name) for row in hf.threads()} == before


@pytest.mark.parametrize("after", range(1, 19))
def test_an_import_that_was_stopped_goes_on(tmp_path: Path, after: int) -> None:
    path = write_project(tmp_path)

    def stop(what: str, done: int, total: int) -> None:
        if done == after:
            raise KeyboardInterrupt

    with holdfast.open("memory:") as hf, holdfast.open("memory:") as whole_one:
        with pytest.raises(KeyboardInterrupt):
            import_from(hf, KIND, str(path), progress=stop)
        assert taken(hf, path).ok
        taken(whole_one, path)
        for row in whole_one.threads():
            assert lineage(hf, row.name) == lineage(whole_one, row.name)
            assert [each.state for each in steps(hf, row.name).values()] == [
                each.state for each in steps(whole_one, row.name).values()
            ]


@pytest.mark.parametrize("count", range(3, 24, 4))
def test_a_session_that_went_on_since_can_be_replaced(tmp_path: Path, count: int) -> None:
    """Also one that was imported in the middle of a step."""
    talk = whole()
    lines, talk.lines = talk.lines, talk.lines[:count]
    with holdfast.open("memory:") as hf, holdfast.open("memory:") as whole_one:
        path = written(talk, tmp_path)
        taken(hf, path)
        talk.lines = lines
        written(talk, tmp_path)
        taken(whole_one, path)
        assert taken(hf, path).existing == 1
        assert import_from(hf, KIND, str(path), replace=True).ok
        assert lineage(hf) == lineage(whole_one)
        assert [each.state for each in steps(hf).values()] == [each.state for each in steps(whole_one).values()]


def test_a_dry_run_tells_what_would_be_and_stores_nothing(tmp_path: Path, hf: Holdfast) -> None:
    path = write_project(tmp_path)
    told = import_from(hf, KIND, str(path), dry_run=True)
    without = import_from(None, KIND, str(path), dry_run=True)
    assert not [*hf.threads()]
    done = taken(hf, path)
    assert (told.threads, told.checkpoints, told.remarks) == (done.threads, done.checkpoints, done.remarks)
    assert without == told


def test_the_source_is_left_as_it_is(tmp_path: Path, hf: Holdfast) -> None:
    path = write_project(tmp_path)
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*.*") if file.is_file()}
    assert taken(hf, path).ok
    kept = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in before}
    assert kept == before
