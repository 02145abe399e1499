"""Checkpoints of any other system: in order, with what they were, once, and again after a kill."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Usage
from holdfast.delta.load import state_of
from holdfast.importers import import_from
from holdfast.importers.foreign import Aside, Entry, ForeignRecord, ForeignSource, Remark, Unreadable
from holdfast.importers.frame import Progress, Report, run
from holdfast.threads.branches import named
from tests.importers import ares_source
from tests.importers.sources import postgres_schema
from tests.waiting import DEADLINE

STARTED = datetime(2024, 1, 1, 9, tzinfo=UTC)


def record(number: int, **given: Any) -> ForeignRecord:
    """One of a line of checkpoints."""
    said: dict[str, Any] = {
        "id": f"c{number}",
        "step": number,
        "created_at": STARTED + timedelta(seconds=number),
        "state": {"messages": [{"role": "user", "content": f"message {each}"} for each in range(number)]},
    }
    return ForeignRecord(**{**said, **given})


class Line:
    def __init__(self, name: str, entries: list[Entry]) -> None:
        self.name = name
        self.entries = entries

    def records(self) -> Iterator[Entry]:
        yield from self.entries


def bring(
    hf: Holdfast | None,
    *entries: Entry,
    name: str = "a",
    kind: str = "other",
    dry_run: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> Report:
    source = ForeignSource(kind, hf, [Line(name, [*entries])], len(entries))
    return run(source, dry_run=dry_run, replace=replace, progress=progress)


def steps(hf: Holdfast, name: str = "a") -> list[int]:
    return [checkpoint.step for checkpoint in hf.thread(name).history()][::-1]


def test_all_that_a_record_says_is_kept(hf: Holdfast) -> None:
    said = record(
        1,
        status="failed",
        reason="it broke",
        trigger="after_tool",
        label="best",
        tags=("x", "y"),
        metadata={"owner": "ann"},
        agent="writer",
        usage=Usage(total=7, cost=0.5),
        resume_hint="go on",
        rest={"ttl": 5},
    )
    report = bring(hf, said, record(2))
    assert report.ok
    assert (report.threads, report.checkpoints, report.checked) == (1, 2, 2)
    first, second = (hf.thread("a").load(ref) for ref in ("@1", "@2"))
    assert first.state == said.state
    assert first.created_at == said.created_at
    assert (first.status, first.reason, first.trigger, first.label) == ("failed", "it broke", "after_tool", "best")
    assert (first.tags, first.agent, first.usage, first.resume_hint) == (("x", "y"), "writer", said.usage, "go on")
    assert first.metadata == {"owner": "ann", "$imported": {"from": "other", "id": "c1", "rest": {"ttl": 5}}}
    assert second.metadata == {"$imported": {"from": "other", "id": "c2", "head": "c2"}}
    assert (first.parent, second.parent) == (None, first.id)
    assert hf.thread("a").head() == hf.thread("a").find(status="running")


def test_a_thread_that_exists_is_skipped(hf: Holdfast) -> None:
    bring(hf, *map(record, range(1, 4)))
    before = hf.thread("a").head()
    for dry_run in (True, False):
        again = bring(hf, *map(record, range(1, 6)), dry_run=dry_run)
        assert (again.checkpoints, again.existing, again.present, again.ok) == (0, 1, 3, True)
    assert steps(hf) == [1, 2, 3]
    assert hf.thread("a").head() == before


def test_a_thread_whose_last_checkpoint_cannot_be_stored_is_not_imported_again(hf: Holdfast) -> None:
    deep: list[Any] = []
    for _ in range(210):
        deep = [deep]
    entries = [record(1), record(2), record(3, state=deep)]
    first = bring(hf, *entries)
    assert (first.checkpoints, [each.item for each in first.skipped]) == (2, ["checkpoint c3"])
    before = hf.thread("a").head()
    again = bring(hf, *entries)
    assert (again.checkpoints, again.existing) == (0, 1)
    assert hf.thread("a").head() == before


def test_a_dry_run_stores_nothing_and_says_what_could_not_be_stored(hf: Holdfast) -> None:
    deep: list[Any] = []
    for _ in range(210):
        deep = [deep]
    for store in (hf, None):
        report = bring(store, record(1), record(2, state={"deep": deep}), dry_run=True)
        assert (report.checkpoints, report.checked) == (1, 0)
        assert [finding.item for finding in report.skipped] == ["checkpoint c2"]
    assert not [*hf.threads()]


def test_a_thread_that_exists_can_be_replaced(hf: Holdfast) -> None:
    bring(hf, record(1), record(2))
    given = record(1), record(2, state={"n": 2}), record(3)
    rehearsed = bring(hf, *given, replace=True, dry_run=True)
    assert (rehearsed.checkpoints, rehearsed.existing, steps(hf)) == (3, 0, [1, 2])
    report = bring(hf, *given, replace=True)
    assert (report.checkpoints, report.existing, report.checked, report.ok) == (3, 0, 3, True)
    assert steps(hf) == [1, 2, 3]
    assert hf.thread("a").load("@2").state == {"n": 2}


def test_nothing_is_replaced_by_a_source_that_cannot_be_read(hf: Holdfast) -> None:
    """It was torn since the import: what is stored is all there is."""
    bring(hf, record(1), record(2), record(3))
    for given in ([record(1), Unreadable("file 2", "torn"), record(3)], [Unreadable("file 1", "torn")], []):
        for dry_run in (True, False):
            report = bring(hf, *given, replace=True, dry_run=dry_run)
            assert (report.checkpoints, report.ok) == (0, False)
            assert "the stored thread was kept" in report.skipped[-1].reason
            assert steps(hf) == [1, 2, 3]


def test_a_record_that_can_be_read_later_is_there_after_a_replacement(hf: Holdfast) -> None:
    bring(hf, record(1), Unreadable("file 2", "torn"), record(3))
    assert bring(hf, record(1), record(2), record(3), Unreadable("file 4", "torn"), replace=True).checkpoints == 3
    assert steps(hf) == [1, 2, 3]


def test_a_thread_that_a_process_runs_is_not_replaced(hf: Holdfast) -> None:
    with hf.run("a", start={"n": 0}):
        report = bring(hf, record(1), replace=True)
        assert (report.checkpoints, report.ok) == (0, False)
    assert hf.thread("a").load("@0").state == {"n": 0}


def test_parents_are_kept(hf: Holdfast) -> None:
    """Two that go on from one checkpoint."""
    report = bring(hf, record(1), record(2, parent="c1"), record(3, parent="c1"), record(4, parent="c2"))
    assert report.ok
    first, second, third, fourth = (hf.thread("a").load(f"@{step}") for step in range(1, 5))
    assert (second.parent, third.parent, fourth.parent) == (first.id, first.id, second.id)
    assert fourth.metadata["$imported"]["parent"] == "c2"
    assert fourth.state == record(4).state


def test_a_parent_that_is_not_there_is_said(hf: Holdfast) -> None:
    report = bring(hf, record(1, parent="gone"), record(2, parent="lost"))
    assert report.ok
    assert [finding.what for finding in report.remarks] == [
        "checkpoint c1: its parent gone is not in the source",
        "checkpoint c2: its parent lost is not in the source; the checkpoint before it was used instead",
    ]
    assert hf.thread("a").load("@2").parent == hf.thread("a").load("@1").id
    assert hf.thread("a").load("@2").metadata["$imported"]["parent"] == "lost"


def test_the_head_is_what_the_source_goes_on_from(hf: Holdfast) -> None:
    bring(hf, record(1), record(2, is_head=True), record(3))
    head = hf.thread("a").head()
    assert head is not None
    assert head.step == 2


def test_who_rewound_it_here_is_not_overruled(hf: Holdfast) -> None:
    bring(hf, record(1), record(2), record(3))
    thread = hf.thread("a")
    thread.latest()
    thread.rewind("@1")
    assert bring(hf, record(1), record(2), record(3)).ok
    assert hf.thread("a").step() == 1


def test_a_head_that_was_labelled_here_stays(hf: Holdfast) -> None:
    bring(hf, record(1), record(2))
    labelled = named(hf.context, "a", "@-1", label="good")
    assert bring(hf, record(1), record(2)).ok
    head = hf.thread("a").head()
    assert head is not None
    assert head.id == labelled.id


def test_an_id_that_is_there_twice(hf: Holdfast) -> None:
    """The very same is taken once; two that differ are both taken."""
    other = record(1, state={"messages": []})
    report = bring(hf, record(1), record(1), other, record(2, parent="c1"))
    assert (report.checkpoints, report.checked, report.ok) == (3, 3, True)
    assert [finding.reason for finding in report.remarks] == [
        "the source contains it twice; it was imported once",
        "the source contains another checkpoint with this id; both were imported",
    ]
    again = bring(hf, record(1), record(1), other, record(2, parent="c1"))
    assert (again.checkpoints, again.present, again.ok) == (0, 3, True)
    states = [hf.thread("a").load(each).state for each in hf.thread("a").history()]
    assert states == [record(2).state, other.state, record(1).state]


def test_ids_may_repeat_where_there_is_another_key(hf: Holdfast) -> None:
    given = [record(number, id="same", key=str(number)) for number in (1, 2)]
    assert not bring(hf, *given).remarks
    assert bring(hf, *given).present == 2


@pytest.mark.parametrize("saved", [{"messages": []}, {"messages": [{"role": "user", "content": "message 0"}]}])
def test_a_thread_that_is_not_of_this_source_is_left_alone(hf: Holdfast, saved: dict[str, Any]) -> None:
    hf.thread("a").save(saved)
    report = bring(hf, record(1), record(2))
    assert (report.checkpoints, report.ok) == (0, False)
    assert report.skipped[0].reason.startswith("a different thread with this name exists")
    assert hf.thread("a").count() == 1


def test_nor_is_one_that_was_imported_from_elsewhere(hf: Holdfast) -> None:
    bring(hf, record(1), record(2))
    for dry_run in (True, False):
        report = bring(hf, record(1), record(3), kind="another", dry_run=dry_run)
        assert report.skipped[0].reason.startswith("a different thread with this name exists")
    assert steps(hf) == [1, 2]
    assert bring(hf, record(1), record(3), kind="another", replace=True).ok
    assert steps(hf) == [1, 3]


def test_a_thread_that_went_on_here_is_skipped(hf: Holdfast) -> None:
    """Also one whose import was stopped: what was saved since must not be lost."""
    with pytest.raises(KeyboardInterrupt):
        bring(hf, record(1), record(2), record(3), progress=stopped_at(2))
    thread = hf.thread("a")
    thread.latest()
    thread.save({"messages": []}, step=9)
    report = bring(hf, record(1), record(2), record(3))
    assert (report.checkpoints, report.existing, report.ok) == (0, 1, True)
    assert steps(hf) == [1, 2, 9]


def test_a_fork_and_a_label_are_not_taken_for_a_stopped_import(hf: Holdfast) -> None:
    """They have the metadata of what they were made from. Nobody imported them, and nobody may drop them."""
    bring(hf, record(1), record(2), name="origin")
    hf.thread("origin").fork("a", at="@1")
    report = bring(hf, record(1), record(2))
    assert (report.checkpoints, report.ok, steps(hf)) == (0, False, [1])
    with pytest.raises(KeyboardInterrupt):
        bring(hf, record(1), record(2), record(3), name="b", progress=stopped_at(2))
    labelled = named(hf.context, "b", "@-1", label="good")
    assert bring(hf, record(1), record(2), record(3), name="b").existing == 1
    head = hf.thread("b").head()
    assert head is not None
    assert head.id == labelled.id


def test_what_is_stored_is_compared_with_the_source(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state that is given in full, and of a conversation that grows the end of each branch."""
    states: list[Any] = []

    def wrong(*given: Any) -> Any:
        states.append(state_of(*given))
        return {**states[-1], "messages": [*states[-1]["messages"][:-1], {"role": "user", "content": True}]}

    def added(number: int, parent: str) -> ForeignRecord:
        return record(number, state={"messages": [f"message {number}"]}, parent=parent, grows=True)

    monkeypatch.setattr("holdfast.importers.foreign.state_of", wrong)
    report = bring(hf, record(1), record(2), name="full")
    assert [finding.item for finding in report.differing] == ["checkpoint c1", "checkpoint c2"]
    report = bring(hf, record(1), added(2, "c1"), added(3, "c2"), added(4, "c2"), added(5, "c4"), name="grows")
    assert [finding.item for finding in report.differing] == ["checkpoint c1", "checkpoint c3", "checkpoint c5"]
    assert {finding.reason for finding in report.differing} == {"differs from the source: its state"}


def test_a_conversation_that_grows(hf: Holdfast) -> None:
    def added(number: int, parent: str, **more: Any) -> ForeignRecord:
        state = {"messages": [{"content": f"message {number}", "n": number}], **more}
        return record(number, state=state, parent=parent, grows=True)

    given = [record(1), *(added(number, f"c{number - 1}") for number in range(2, 200)), added(200, "c100", title="x")]
    lost = record(201, state={"messages": []}, parent="nowhere", grows=True)
    report = bring(hf, *given, lost)
    assert [finding.what for finding in report.skipped] == ["checkpoint c201: its parent nowhere was not imported"]
    assert (report.checkpoints, report.differing) == (200, ())
    for number in (1, 2, 3, 50, 199):
        whole = [
            record(1).state["messages"][0],
            *(added(each, "").state["messages"][0] for each in range(2, number + 1)),
        ]
        assert hf.thread("a").load(f"@{number}").state == {"messages": whole}
    branch = hf.thread("a").load("@200").state
    assert (len(branch["messages"]), branch["messages"][-1]["n"], branch["title"]) == (101, 200, "x")
    assert hf.verify().ok


def test_a_dry_run_says_what_is_too_large(tmp_path: Path) -> None:
    given = [record(1), record(2, state={"messages": ["x" * 5000]}), record(3)]
    with holdfast.open(tmp_path / "small.db", max_state_bytes=2000) as hf:
        rehearsed, done = (bring(hf, *given, dry_run=dry_run) for dry_run in (True, False))
    assert [finding.item for finding in done.skipped] == ["checkpoint c2"]
    assert (rehearsed.skipped, rehearsed.checkpoints) == (done.skipped, done.checkpoints)


def test_what_cannot_be_stored_is_skipped_with_the_reason(hf: Holdfast) -> None:
    report = bring(
        hf,
        record(1),
        record(2, step=-1),
        record(3, metadata={"$imported": 1}),
        record(4, label="\ud800"),
        record(5, tags=(1,)),
        record(6),
    )
    assert steps(hf) == [1, 6]
    assert [finding.item for finding in report.skipped] == [f"checkpoint c{number}" for number in range(2, 6)]
    assert hf.thread("a").load("@6").parent == hf.thread("a").load("@1").id


def test_a_time_that_is_none_is_that_of_the_import(hf: Holdfast) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert bring(hf, record(1, created_at=None)).ok
    assert bring(hf, record(1, created_at=None)).ok
    assert hf.thread("a").load("@1").created_at > before


def test_what_is_told_of_a_thread_and_of_the_source(hf: Holdfast) -> None:
    line = Line("a", [Remark("pointer", "odd"), Unreadable("file x", "torn"), record(1, remarks=("strange",))])
    aside = Aside([Remark("y", "no checkpoint"), Unreadable("z", "a link")])
    report = run(ForeignSource("other", hf, [line, aside], 1), dry_run=False, progress=None)
    assert report.threads == 1
    assert [(finding.thread, finding.what) for finding in report.remarks] == [
        ("a", "pointer: odd"),
        ("a", "checkpoint c1: strange"),
        (None, "y: no checkpoint"),
    ]
    assert [(finding.thread, finding.what) for finding in report.skipped] == [
        ("a", "file x: torn"),
        (None, "z: a link"),
    ]


def test_progress_goes_to_its_end(hf: Holdfast) -> None:
    told: list[tuple[str, int, int]] = []
    bring(hf, record(1), record(2), progress=lambda what, done, of: told.append((what, done, of)))
    assert told == [("importing", 1, 4), ("importing", 2, 4), ("checking", 3, 4), ("checking", 4, 4)]


def test_texts_are_redacted(tmp_path: Path) -> None:
    def redact(text: str) -> str:
        return text.replace("secret", "[redacted]")

    given = record(1, id="c-secret", state={"messages": ["secret"]}, metadata={"k": "secret"}, rest={"r": "secret"})
    with holdfast.open(tmp_path / "redacted.db", durability="off", redact=redact) as hf:
        assert bring(hf, given).ok
        assert bring(hf, given).present == 1
        found = hf.thread("a").load("@1")
    assert found.state == {"messages": ["[redacted]"]}
    assert found.metadata["k"] == found.metadata["$imported"]["rest"]["r"] == "[redacted]"
    assert found.metadata["$imported"]["id"] == "c-secret"


@pytest.mark.parametrize("kind", ["memory:", "dir:folder", "agent.db", "postgresql:"])
def test_on_every_store(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = [record(1), record(2), record(3, parent="c1"), record(4, parent="c2", is_head=True), record(5)]
    with postgres_schema() if kind == "postgresql:" else nullcontext(kind) as url, holdfast.open(url) as hf:
        assert bring(hf, *given).ok
        again = bring(hf, *given)
        assert (again.present, again.ok) == (5, True)
        assert hf.thread("a").step() == 4
        assert hf.verify().ok


def test_states_share_what_they_have_in_common(tmp_path: Path) -> None:
    """Each file of the old systems holds all messages again."""
    noise = [random.Random(number).randbytes(1000).hex() for number in range(60)]
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        bring(hf, *(record(number, state={"messages": noise[:number]}) for number in range(1, 61)))
    assert path.stat().st_size < 500_000  # of 3.7 MB


def stopped_at(count: int) -> Callable[[str, int, int], None]:
    def progress(_what: str, done: int, _of: int) -> None:
        if done == count:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("count", range(1, 9))
def test_an_import_that_was_stopped_goes_on(hf: Holdfast, count: int) -> None:
    given = [record(1), record(2), record(3, parent="c1", is_head=True), record(4, parent="c2")]
    with pytest.raises(KeyboardInterrupt):
        bring(hf, *given, progress=stopped_at(count))
    report = bring(hf, *given)
    assert (report.existing, report.checkpoints, report.ok) == ((0, 4, True) if count < 5 else (1, 0, True))
    assert steps(hf) == [1, 2, 3, 4]
    assert hf.thread("a").step() == 3


def test_an_import_that_was_killed_goes_on(tmp_path: Path) -> None:
    ares_source.play(tmp_path / "ares", "s", 6)
    script = (
        "import os, signal, sys, holdfast\n"
        "from holdfast.importers import import_from\n"
        "def show(what, done, of):\n"
        "    if done == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "with holdfast.open(sys.argv[2]) as hf: import_from(hf, 'ares', sys.argv[1], progress=show)\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "ares"), str(tmp_path / "agent.db")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run(words, env=environment, check=False, timeout=DEADLINE)
    assert killed.returncode == -signal.SIGKILL
    with holdfast.open(tmp_path / "agent.db") as hf:
        assert hf.thread("s").count() == 4
        report = import_from(hf, "ares", str(tmp_path / "ares"))
        assert (report.present, report.checkpoints, report.ok) == (0, 6, True)
        assert steps(hf, "s") == [*range(6)]
        assert hf.verify().ok
