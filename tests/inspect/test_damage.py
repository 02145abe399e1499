"""Looking at a damaged store: what is whole is shown, and what is not is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

import pytest

from holdfast import Damaged, Holdfast, Run
from holdfast.inspect import interrupted, recovery, step_of, stuck_for, threads, timeline, waiting
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry
from holdfast.threads.scan import thread_named
from tests.runs.conftest import World
from tests.selection import every_store
from tests.threads.tables import KINDS, Tables

pytestmark = every_store("each store notices a damaged record of its own")

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
    return [line.name for line in page.threads], bool(page.lost)


def test_the_record_of_a_run(tables: Tables) -> None:
    tables.execute("UPDATE run SET updated_at = updated_at + 1")
    with tables.opened() as hf:
        assert listed(hf) == ([*NAMES], True)
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
    tables.change_blob("entry", "record", f"{tables.in_thread('b')} AND row_key & 4294967295 = 2", _flip)
    with tables.opened() as hf:
        found = timeline(hf, "b")
        assert [call.number for step in found.steps for call in step.calls] == [each for each in whole if each != 2]
        assert len(found.lost) == 1
        assert "journal entry 2" in found.lost[0]
        assert step_of(hf, hf.thread("b").load("@-1")).checkpoint.step == found.steps[0].checkpoint.step
        assert listed(hf) == ([*NAMES], True)


def asking(run: Run) -> None:
    run.model(lambda: "yes")
    run.model(lambda: "no")
    run.wait("approve", {"amount": 3})


@pytest.fixture
def asked(tables: Tables) -> Tables:
    """Two runs more that ask something, each after two model calls in the open step."""
    with tables.opened() as hf:
        for name in ("e", "f"):
            with hf.run(name, start={}) as run:
                asking(run)
    return tables


def test_an_entry_of_the_open_step(asked: Tables) -> None:
    asked.change_blob("entry", "record", f"{asked.in_thread('e')} AND row_key & 4294967295 = 1", _flip)
    with asked.opened() as hf:
        plan = recovery(hf, "e")
        assert plan is not None
        assert [(each.call.number, each.does) for each in plan.calls] == [(2, "answered"), (3, "wait")]
        assert len(plan.lost) == 1
        assert "journal entry 1" in plan.lost[0]
        assert not plan.can_resume
        assert plan.summary == plan.why_not
        assert plan.summary.startswith("the journal is damaged; `holdfast repair`")
        sound = recovery(hf, "f")
        assert sound is not None
        assert (sound.can_resume, sound.lost) == (True, ())
        found, lost = waiting(hf)
        assert [question.thread for question in found] == ["e", "f"]
        assert lost == ()  # the questions themselves are whole
        with pytest.raises(Damaged), hf.run("e"):  # what was said comes true
            pass


def test_the_entry_that_asks(asked: Tables) -> None:
    asked.change_blob("entry", "record", f"{asked.in_thread('e')} AND row_key & 4294967295 = 3", _flip)
    with asked.opened() as hf:
        found, lost = waiting(hf)
        assert [question.thread for question in found] == ["f"]
        assert len(lost) == 1
        assert "journal entry 3" in lost[0]
        stuck, lost = stuck_for(hf, 0)
        assert [one.thread for one in stuck] == ["e", "f"]
        assert len(lost) == 1
        [e, f] = [line for line in threads(hf).threads if line.name in ("e", "f")]
        assert (e.status, e.waits_for, f.waits_for) == ("waiting", None, "approve")


def thread_number(tables: Tables, name: str) -> int:
    [(number,)] = tables.rows("SELECT thread_no FROM thread WHERE name = ?", name.encode())
    return int(number)


def test_the_record_of_a_run_hides_no_other(asked: Tables) -> None:
    asked.execute("UPDATE run SET updated_at = updated_at + 1 WHERE thread_no = ?", thread_number(asked, "e"))
    with asked.opened() as hf:
        for found, lost in (waiting(hf), stuck_for(hf, 0)):
            assert [one.thread for one in found] == ["f"]
            assert len(lost) == 1
        with pytest.raises(Damaged):
            recovery(hf, "e")


class Hurt:
    """A store in which an entry of the journal of one thread cannot be read."""

    def __init__(self, store: Store, thread: str, number: int) -> None:
        self._store = store
        self._thread = thread
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        row = thread_named(self._store, self._thread)
        if row is not None and row.position.thread == thread and after < self._number <= after + limit:
            raise Damaged(f"journal entry {self._number} is hurt")
        return self._store.entries(thread, after=after, limit=limit, topic=topic)


def test_an_interrupted_run_hides_no_other(world: World) -> None:
    for name in ("g", "h"):
        with world.dying(name, start={}) as run:
            run.model(lambda: "yes", key="1")
            run.model(lambda: "no", key="2")
    with pytest.raises(Damaged):
        list(world.open(store=hurt).interrupted())
    found, lost = interrupted(world.open(store=hurt))
    assert [(each.thread, plan.answered, plan.can_resume) for each, plan in found] == [("g", 1, False), ("h", 2, True)]
    assert lost == ("journal entry 1 is hurt",)


def hurt(store: Store) -> Store:
    return cast("Store", Hurt(store, "g", 1))


def _flip(record: bytearray) -> None:
    record[-3] ^= 1


def test_what_a_fork_is_of_is_told_without_a_list_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise AssertionError("there may be very many")

    with Tables("sqlite", tmp_path).opened() as hf:
        hf.thread("z").save({"n": 1})
        hf.thread("z").fork("zz")
        monkeypatch.setattr(hf.context.store, "threads", refuse)
        assert (timeline(hf, "zz").forked_from or "").startswith("z@")
        assert [step.forks for step in timeline(hf, "z").steps] == [("zz",)]
