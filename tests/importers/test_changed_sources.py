"""A source that was changed since it was imported: nothing is added to what it was, and the thread's head stays."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Usage
from holdfast.importers import Report, import_from
from holdfast.importers.foreign_record import Unreadable
from holdfast.importers.reading_back import ReadBack
from tests.importers import ares_source, openai_agents_source, smooth_source
from tests.importers.test_foreign import BEGUN, bring, record, steps

OTHER = "a different thread with this name exists"
CHANGED = "the source has changed since the import"


def stored(hf: Holdfast, name: str) -> list[tuple[str, str | None]]:
    return [(each.id, each.parent) for each in hf.thread(name).history()]


def assert_left_alone(hf: Holdfast, kind: str, source: Path, name: str, reason: str) -> Report:
    """Whether an import stores nothing and moves nothing, and a dry run says the same."""
    before, head = stored(hf, name), hf.thread(name).head()
    rehearsed = import_from(hf, kind, str(source), dry_run=True)
    report = import_from(hf, kind, str(source))
    for each in (rehearsed, report):
        assert (each.checkpoints, each.ok) == (0, False)
        assert any(finding.reason.startswith(reason) for finding in each.skipped)
    assert rehearsed.differing == report.differing
    assert (stored(hf, name), hf.thread(name).head()) == (before, head)
    return report


# -- any format -------------------------------------------------------------------------------------------------------


def test_nothing_is_added_behind_what_was_changed(hf: Holdfast) -> None:
    bring(hf, record(1), record(2), record(3))
    head = hf.thread("a").head()
    given = [record(1), record(2, state={}), record(3), record(4), record(5)]
    for dry_run in (True, False):
        report = bring(hf, *given, dry_run=dry_run)
        assert [finding.what for finding in report.differing] == ["checkpoint c2: differs from the source: its state"]
        assert [finding.item for finding in report.skipped] == ["checkpoint c4", "checkpoint c5"]
        assert all(finding.reason.startswith(CHANGED) for finding in report.skipped)
        assert (report.checkpoints, report.present) == (0, 3)
    assert steps(hf) == [1, 2, 3]
    assert hf.thread("a").head() == head


@pytest.mark.parametrize(
    "change",
    [{"status": "halted"}, {"created_at": BEGUN}, {"usage": Usage(total=1)}, {"agent": "bob"}, {"rest": {"x": 1}}],
)
def test_a_field_that_was_changed_counts_as_a_state(hf: Holdfast, change: dict[str, Any]) -> None:
    bring(hf, record(1), record(2))
    report = bring(hf, record(1), record(2, **change), record(3))
    assert len(report.differing) == 1
    assert [finding.item for finding in report.skipped] == ["checkpoint c3"]
    assert steps(hf) == [1, 2]


def test_nor_does_the_head_move(hf: Holdfast) -> None:
    """The source goes on from one that was written anew; what is here of it is older."""
    bring(hf, record(1), record(2), record(3))
    report = bring(hf, record(1), record(3), record(2, state={"messages": ["new"]}))
    assert not report.ok
    assert hf.thread("a").step() == 3


def test_one_state_in_common_does_not_make_one_thread_of_two(hf: Holdfast) -> None:
    bring(hf, record(1, agent="alice"), record(2, agent="alice"))
    report = bring(hf, record(1, agent="bob", created_at=BEGUN), record(3, agent="bob"))
    assert [finding.reason.startswith(OTHER) for finding in report.skipped] == [True]
    assert steps(hf) == [1, 2]


def test_what_is_damaged_here_is_not_gone_on_with(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/store") as hf:
        bring(hf, record(1), record(2, state={"messages": ["here it is"]}), record(3))
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(b"here it is", b"here it was"[:10]))
    with holdfast.open(f"dir:{tmp_path}/store") as hf:
        report = bring(hf, record(1), record(2, state={"messages": ["here it is"]}), record(3), record(4))
        assert (report.checkpoints, report.ok) == (0, False)


def test_each_is_compared_once(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    holds = ReadBack.holds

    def counted(self: ReadBack, row: Any, *args: Any) -> bool:
        compared.append(row.seq)
        return holds(self, row, *args)

    monkeypatch.setattr(ReadBack, "holds", counted)
    bring(hf, record(1), record(2))
    assert compared == [1, 2]
    report = bring(hf, record(1), record(2), record(3))
    assert compared == [1, 2, 1, 2, 3]
    assert report.checked == 3


def test_a_record_that_can_be_read_only_later_is_remarked(hf: Holdfast) -> None:
    """What follows it is there already, behind the one before it: a fresh import would have them in one line."""
    bring(hf, record(1), Unreadable("file 2", "torn"), record(3))
    report = bring(hf, record(1), record(2), record(3))
    [remark] = report.remarks
    assert remark.item == "checkpoint c3"
    assert remark.reason.startswith("the checkpoint before it was imported later")
    assert report.ok


def test_a_parent_that_can_be_read_only_later_differs(hf: Holdfast) -> None:
    bring(hf, record(1), Unreadable("file 2", "torn"), record(3, parent="c2"))
    report = bring(hf, record(1), record(2), record(3, parent="c2"))
    assert [finding.what for finding in report.differing] == ["checkpoint c3: differs from the source: its parent"]


def test_a_dry_run_says_what_is_too_large(tmp_path: Path) -> None:
    given = [record(1), record(2, state={"messages": ["x" * 5000]}), record(3)]
    with holdfast.open(tmp_path / "small.db", max_state_bytes=2000) as hf:
        rehearsed, done = (bring(hf, *given, dry_run=dry_run) for dry_run in (True, False))
    assert [finding.item for finding in done.skipped] == ["checkpoint c2"]
    assert (rehearsed.skipped, rehearsed.checkpoints) == (done.skipped, done.checkpoints)


# -- formats that write again what they wrote --------------------------------------------------------------------------


def test_two_folders_of_ares_with_one_session(hf: Holdfast, tmp_path: Path) -> None:
    """They begin with the same words."""
    for who, folder, numbers in (("alice", "one", (0, 1, 2)), ("bob", "two", (0, 5, 6))):
        for number in numbers:
            said = ares_source.checkpoint("s", number, agent_name=who, id=f"{who}-{number}")
            ares_source.save(tmp_path / folder, said)
    assert import_from(hf, "ares", str(tmp_path / "one")).ok
    assert_left_alone(hf, "ares", tmp_path / "two", "s", OTHER)


def test_a_session_of_ares_that_was_begun_anew(hf: Holdfast, tmp_path: Path) -> None:
    """It writes over the files of the attempt before."""
    ares_source.play(tmp_path, "s")
    assert import_from(hf, "ares", str(tmp_path)).ok
    for step in (1, 2, 3):
        said = ares_source.checkpoint("s", step, messages=[{"role": "user", "content": f"anew {step}"}])
        ares_source.save(tmp_path, {**said, "timestamp": ares_source.BEGUN + 9000 + step})
    report = assert_left_alone(hf, "ares", tmp_path, "s", CHANGED)
    assert {finding.item for finding in report.differing} == {"checkpoint s-1", "checkpoint s-2"}


def test_a_row_of_an_agents_session_that_was_edited(hf: Holdfast, tmp_path: Path) -> None:
    path = openai_agents_source.write_sessions(tmp_path / "sessions.db", "s")
    assert import_from(hf, "openai-agents-sqlite", str(path)).ok
    with closing(openai_agents_source.connect(path)) as connection:
        connection.execute("""UPDATE agent_messages SET message_data = '{"role": "user"}' WHERE id = 3""")
        openai_agents_source.add_items(connection, "s", [{"role": "user", "content": "More"}], 5)
    assert_left_alone(hf, "openai-agents-sqlite", path, "s", CHANGED)


def test_a_checkpoint_of_smooth_that_was_saved_again(hf: Holdfast, tmp_path: Path) -> None:
    """`INSERT OR REPLACE` makes it the newest row: the thread must not go back to what it was before."""
    path = smooth_source.write_sqlite(tmp_path / "smooth.db", "agent")
    assert import_from(hf, "smooth-sqlite", str(path)).ok
    head = hf.thread("agent").head()
    anew = smooth_source.checkpoints("agent")[1]
    with closing(sqlite3.connect(path)) as connection:
        smooth_source.insert(connection, {**anew, "conversation": {"messages": [], "max_context_tokens": 5}})
        connection.commit()
    report = import_from(hf, "smooth-sqlite", str(path))
    assert {finding.item for finding in report.differing} == {f"checkpoint {anew['id']}"}
    assert hf.thread("agent").head() == head
