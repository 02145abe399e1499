"""Versions of programs and of states: what an older program left is gone on with by who can, and else left alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, Incompatible, InvalidArgument, LeaseHeld
from holdfast.stores.contract_runs import RunRow
from holdfast.threads.scan import thread_named
from tests.runs.conftest import World


def record(hf: Holdfast, name: str = "t") -> RunRow:
    """The run's record, all of it."""
    thread = thread_named(hf.context.store, name)
    assert thread is not None
    row = hf.context.store.run(thread.position.thread)
    assert row is not None
    return row


def leave(world: World, status: str, version: str | None) -> None:
    """Leave an unfinished run behind, started by a program of that version."""
    if status == "running":
        with world.dying("t", start={"n": 0}, version=version):
            pass
    elif status == "failed":
        with world.failing("t", ZeroDivisionError, start={"n": 0}, version=version):
            raise ZeroDivisionError
    else:
        with world.open().run("t", start={"n": 0}, version=version) as run:
            if status == "halted":
                run.halt("enough")
            if status == "waiting":
                run.wait("question")
    assert record(world.open()).status == status


def rename(state: Any) -> Any:
    return {"messages": state["log"]}


UNFINISHED = ["running", "failed", "idle", "halted", "waiting"]


class TestVersionOfAProgram:
    @pytest.mark.parametrize("status", UNFINISHED)
    def test_an_unfinished_run_of_another_version_is_refused_and_left_as_it_was(
        self, world: World, status: str
    ) -> None:
        leave(world, status, "1")
        hf = world.open()
        before = record(hf)
        with pytest.raises(Incompatible, match=r"thread 't'.* version '1'.* version '2'"), hf.run("t", version="2"):
            pytest.fail("it was claimed")
        assert record(hf) == before

    @pytest.mark.parametrize("status", UNFINISHED)
    @pytest.mark.parametrize(
        ("started", "resumed", "then"), [("1", "1", "1"), ("1", None, "1"), (None, "2", "2"), (None, None, None)]
    )
    def test_it_is_gone_on_with_by_its_own_version_or_where_one_side_names_none(
        self, world: World, status: str, started: str | None, resumed: str | None, then: str | None
    ) -> None:
        leave(world, status, started)
        hf = world.open()
        with world.running("t", hf, version=resumed) as run:
            assert run.state == {"n": 0}
        assert record(hf).version == then

    def test_a_run_that_is_held_is_not_incompatible_yet(self, world: World) -> None:
        hf = world.open()
        with world.running("t", ends="completed", start={}, version="1") as run:
            with pytest.raises(LeaseHeld), hf.run("t", version="2"):
                pytest.fail("it is held")
            run.finish()

    def test_the_result_of_a_completed_run_is_for_every_version(self, world: World) -> None:
        with world.running("t", ends="completed", start={}, version="1") as run:
            run.finish("done")
        with world.running("t", ends="completed", version="2") as run:
            assert run.result == "done"
        assert record(world.open()).version == "1"

    def test_a_new_turn_may_begin_with_a_new_version(self, world: World) -> None:
        hf = world.open()
        with world.running("t", hf, ends="completed", start={}, version="1", turn="a") as run:
            run.finish("first")
        with world.running("t", hf, version="2", turn="b"):
            pass
        assert record(hf).version == "2"
        with pytest.raises(Incompatible, match=r"version '2'.* version '1'"), hf.run("t", version="1", turn="b"):
            pytest.fail("version 2 has started it")
        with world.running("t", hf, ends="completed", version="1", turn="a") as run:
            assert run.result == "first"

    def test_a_halted_run_may_be_followed_by_a_turn_of_a_new_version(self, world: World) -> None:
        hf = world.open()
        with world.running("t", hf, ends="halted", start={}, version="1", turn="a") as run:
            run.halt("enough")
        with world.running("t", hf, version="2", turn="b"):
            pass
        assert record(hf).version == "2"

    def test_an_async_run_is_refused_too(self, hf: Holdfast) -> None:
        with hf.run("t", start={}, version="1"):
            pass
        before = record(hf)

        async def resume() -> None:
            async with hf.aio.run("t", version="2"):
                pytest.fail("it was claimed")

        with pytest.raises(Incompatible, match="version '1'"):
            asyncio.run(resume())
        assert record(hf) == before


class TestOldRuns:
    def test_an_interrupted_run_says_which_version_it_needs(self, world: World) -> None:
        leave(world, "running", "1")
        [found] = world.open().interrupted()
        assert found.plan == "resume after step 0; answer 0 calls from the journal; needs a worker of version '1'"

    def test_an_interrupted_run_without_a_version_needs_none(self, world: World) -> None:
        leave(world, "running", None)
        [found] = world.open().interrupted()
        assert "version" not in found.plan

    def test_a_worker_of_another_version_leaves_it_listed(self, world: World) -> None:
        hf = world.open()
        hf.submit("h", "t", start={}, version="1")
        with world.dying("t", hf, start={}):
            pass
        before = record(hf)
        hf.worker({"h": lambda _: pytest.fail("it was claimed")}, versions=["2", None]).run(until_idle=True)
        assert record(hf) == before
        assert ["needs a worker of version '1'" in found.plan for found in hf.interrupted()] == [True]
        hf.worker({"h": lambda _: "done"}, versions=["1"]).run(until_idle=True)
        assert record(hf).status == "completed"


class TestVersionOfAState:
    def test_a_run_keeps_the_schema_version_with_its_checkpoints(self, world: World) -> None:
        hf = world.open()
        with world.running("t", hf, start={"log": []}, schema_version=1) as run:
            run.save()
        assert [checkpoint.schema_version for checkpoint in hf.thread("t").history()] == [1, 1]

    def test_a_resumed_run_has_its_state_migrated(self, world: World) -> None:
        with world.dying("t", start={"log": ["a"]}, schema_version=1) as run:
            run.state["log"].append("b")
            run.save()
        hf = world.open()
        hf.migration(1, 2)(rename)
        with world.running("t", hf, schema_version=2) as run:
            assert (run.state, run.step, run.resumed) == ({"messages": ["a", "b"]}, 2, True)
            run.state["messages"].append("c")
            run.save()
        assert [checkpoint.schema_version for checkpoint in hf.thread("t").history()] == [2, 1, 1]
        assert hf.thread("t").load("@-1").state == {"messages": ["a", "b", "c"]}
        assert hf.thread("t").load("@-2").state == {"log": ["a", "b"]}
        assert hf.verify().ok

    def test_what_the_open_step_recorded_is_given_back_as_it_was(self, world: World) -> None:
        with world.dying("t", start={"log": ["a"]}, schema_version=1) as run:
            run.model(lambda: {"log": "a reply of version 1"})
        hf = world.open()
        hf.migration(1, 2)(rename)
        with world.running("t", hf, schema_version=2) as run:
            assert run.model(lambda: "paid for twice") == {"log": "a reply of version 1"}

    @pytest.mark.parametrize("status", ["running", "failed", "idle", "waiting"])
    def test_a_run_whose_state_cannot_be_migrated_is_left_as_it_was(self, world: World, status: str) -> None:
        leave(world, status, None)
        hf = world.open()
        before = record(hf)

        @hf.migration(0, 2)
        def break_down(state: Any) -> Any:
            raise KeyError("log")

        for wanted in (1, 2):
            with pytest.raises(Incompatible, match="thread 't'"), hf.run("t", schema_version=wanted):
                pytest.fail("it was claimed")
        assert record(hf) == before

    def test_a_completed_run_gives_its_state_migrated_or_not_at_all(self, world: World) -> None:
        hf = world.open()
        with world.running("t", hf, ends="completed", start={"log": []}, schema_version=1) as run:
            run.finish()
        with pytest.raises(Incompatible), hf.run("t", schema_version=2):
            pytest.fail("its state cannot be given")
        hf.migration(1, 2)(rename)
        with world.running("t", hf, ends="completed", schema_version=2) as run:
            assert run.state == {"messages": []}

    def test_a_thread_saved_by_an_older_program_can_be_run(self, world: World) -> None:
        hf = world.open()
        hf.thread("t", schema_version=1).save({"log": ["a"]})
        with pytest.raises(Incompatible), hf.run("t", schema_version=2):
            pytest.fail("there is no migration yet")
        hf.migration(1, 2)(rename)
        with world.running("t", hf, schema_version=2) as run:
            assert (run.state, run.resumed) == ({"messages": ["a"]}, False)

    def test_without_a_schema_version_the_state_is_as_it_was(self, world: World) -> None:
        hf = world.open()
        hf.migration(1, 2)(rename)
        hf.thread("t", schema_version=1).save({"log": ["a"]})
        with world.running("t", hf) as run:
            assert run.state == {"log": ["a"]}

    def test_an_async_run_has_its_state_migrated_too(self, hf: Holdfast) -> None:
        with hf.run("t", start={"log": ["a"]}, schema_version=1):
            pass
        hf.migration(1, 2)(rename)

        async def resume() -> Any:
            async with hf.aio.run("t", schema_version=2) as run:
                await run.save()
                return run.state

        assert asyncio.run(resume()) == {"messages": ["a"]}
        assert [checkpoint.schema_version for checkpoint in hf.thread("t").history()] == [2, 1]

    def test_a_schema_version_is_checked_before_anything_is_claimed(self, hf: Holdfast) -> None:
        for wrong in (-1, True, "2"):
            with pytest.raises(InvalidArgument, match="schema_version"):
                hf.run("t", start={}, schema_version=wrong)  # type: ignore[arg-type] # what the types forbid
        assert list(hf.threads()) == []
