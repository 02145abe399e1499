"""Transcripts that are imported again: after it was stopped, after the session went on, or for no reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.importers import import_from
from tests.importers.claude_source import SESSION, whole, write_project
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
    assert (again.checkpoints, again.present, again.checked) == (0, 19, 19)
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


@pytest.mark.parametrize("count", range(1, 24))
def test_a_session_that_went_on_since_is_gone_on_with(tmp_path: Path, count: int) -> None:
    """What was imported of its beginning stays as it is; the rest hangs where it would have been."""
    talk = whole()
    lines, talk.lines = talk.lines, talk.lines[:count]
    with holdfast.open("memory:") as hf, holdfast.open("memory:") as whole_one:
        path = written(talk, tmp_path)
        taken(hf, path)
        talk.lines = lines
        written(talk, tmp_path)
        taken(whole_one, path)

        report = taken(hf, path)

        assert report.ok
        parents, expected = lineage(hf), lineage(whole_one)
        assert {key: parent for key, parent in parents.items() if key in expected} == expected
        # A step that was not over yet is there as it was.
        assert len(parents.keys() - expected.keys()) <= 1
        latest, newest = hf.thread(SESSION).latest(), whole_one.thread(SESSION).latest()
        assert latest is not None
        assert newest is not None
        assert latest.state == newest.state


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
