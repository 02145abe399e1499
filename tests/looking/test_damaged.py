"""Looking at a damaged store: what is whole is shown, and what is not is said."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

import pytest

from holdfast import Holdfast, Run
from holdfast.looking.accounts import account, weight
from holdfast.looking.threads import threads
from holdfast.looking.timeline import step_of, timeline
from tests.threads.tables import KINDS, Tables

NAMES = ("a", "b", "c", "d")


def work(run: Run) -> None:
    for step in run.steps():
        run.model(lambda: {"usage": {"prompt_tokens": 3, "completion_tokens": 4}})
        run.state["n"] = step
        if step == 4:
            run.finish("done")


@pytest.fixture(params=KINDS)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    """A store with a thread, one with a run, a fork of the first, and one more."""
    found = Tables(cast("Literal['sqlite', 'postgres']", request.param), tmp_path)
    with found.opened() as hf:
        hf.thread("a").save({"n": 1})
        with hf.run("b", start={"n": 0}) as run:
            work(run)
        hf.thread("a").fork("c")
        hf.thread("d").save({"n": 1})
    return found


def listed(hf: Holdfast) -> tuple[list[str], bool]:
    page = threads(hf)
    return [line.name for line in page.threads], page.lost is not None


def test_the_record_of_a_run(tables: Tables) -> None:
    tables.execute("UPDATE run SET updated_at = updated_at + 1")
    with tables.opened() as hf:
        assert listed(hf) == ([*NAMES], False)
        assert account(hf, NAMES).threads == 4
        assert weight(hf, "a") == 0
        weight(hf, "b")
        found = timeline(hf, "b")
        assert [step.checkpoint.step for step in found.steps] != []
        assert any("run" in each for each in found.lost)


def test_the_record_of_a_thread(tables: Tables) -> None:
    tables.execute("UPDATE thread SET step = step + 1 WHERE name = ?", b"b")
    with tables.opened() as hf:
        assert listed(hf) == (["a", "c", "d"], True)
        assert [line.name for line in threads(hf, order="newest").threads] == ["d", "c", "a"]
        assert [line.name for line in threads(hf, after="a", limit=1).threads] == ["c"]
        assert [step.forks for step in timeline(hf, "a").steps] == [("c",)]
        assert (timeline(hf, "c").forked_from or "").startswith("a@")


def test_an_entry_of_a_journal(tables: Tables) -> None:
    with tables.opened() as hf:
        whole = [call.number for step in timeline(hf, "b").steps for call in step.calls]
    assert len(whole) == 4
    tables.change_blob("effect", "record", f"{tables.in_thread('b')} AND row_key & 4294967295 = 2", _flip)
    with tables.opened() as hf:
        found = timeline(hf, "b")
        assert [call.number for step in found.steps for call in step.calls] == [each for each in whole if each != 2]
        assert len(found.lost) == 1
        assert "journal entry 2" in found.lost[0]
        assert step_of(hf, hf.thread("b").load("@-1")).checkpoint.step == found.steps[0].checkpoint.step
        assert account(hf, NAMES).threads == 4
        assert listed(hf) == ([*NAMES], False)


def _flip(record: bytearray) -> None:
    record[-3] ^= 1


def test_what_a_fork_is_of_is_told_without_a_list_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise AssertionError("there may be very many")

    with Tables("sqlite", tmp_path).opened() as hf:
        hf.thread("z").save({"n": 1})
        hf.thread("z").fork("zz")
        monkeypatch.setattr(hf._session.store, "threads", refuse)
        assert (timeline(hf, "zz").forked_from or "").startswith("z@")
        assert [step.forks for step in timeline(hf, "z").steps] == [("zz",)]
