"""The kill experiment as tests, for the adapter of each framework: subclass `KillContract` and name the program.

No model call is paid again, and the irreversible tool acts as its declaration says.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest

import holdfast
from holdfast import Happened
from tests.adapters.kill_world import Outcome, World, killed_and_resumed, resumed, start

BOUGHT = {"bought": "paper", "amount": 3}


class KillContract:
    """The experiments. `seen` of each is what the model was told about its tools."""

    PROGRAM: ClassVar[str]
    # The model calls without Holdfast. A framework with a store of its own repeats fewer.
    ALONE: ClassVar = ["second 0", "second 1", "second 0", "second 1", "second 2"]

    @pytest.fixture
    def world(self, tmp_path: Path) -> Path:
        return tmp_path / "world"

    def experiment(self, world: Path, scenario: str, policy: str = "ask") -> Outcome:
        return killed_and_resumed(self.PROGRAM, world, scenario, policy)

    def told(self, seen: Any) -> Any:
        """The results of tools that the model was told, as plain data."""
        return seen

    def test_without_holdfast_it_buys_twice(self, world: Path) -> None:
        found = self.experiment(world, "alone")
        assert found.ledger == ["paper", "paper"]
        assert found.models == self.ALONE

    def test_ask_waits_and_buys_once(self, world: Path) -> None:
        found = self.experiment(world, "second")
        assert (found.status, found.ledger, found.questions) == ("waiting", ["paper"], ["buy"])
        with holdfast.open(world / "agent.db") as hf:
            [question] = hf.waiting()
            assert question.payload == {"item": "paper", "amount": 3}
            hf.settle("t", question.effect, Happened(BOUGHT))
        found = resumed(self.PROGRAM, world, "second")
        assert (found.status, found.result, found.ledger) == ("completed", "bought", ["paper"])
        assert self.told(found.seen) == [4, BOUGHT]
        assert found.models == ["second 0", "second 1", "second 2"]

    def test_probe_finds_the_call(self, world: Path) -> None:
        found = self.experiment(world, "second", "probe")
        assert (found.status, found.result, found.ledger, found.reads) == ("completed", "bought", ["paper"], ["paper"])
        assert self.told(found.seen) == [4, BOUGHT]
        assert found.models == ["second 0", "second 1", "second 2"]

    def test_give_up_tells_the_model(self, world: Path) -> None:
        found = self.experiment(world, "second", "give_up")
        assert (found.status, found.result, found.ledger) == ("completed", "bought", ["paper"])
        assert self.told(found.seen)[1]["outcome"] == "unknown"
        assert found.models == ["second 0", "second 1", "second 2"]

    def test_rerun_buys_twice_as_declared(self, world: Path) -> None:
        found = self.experiment(world, "second", "rerun")
        assert (found.status, found.ledger, found.reads) == ("completed", ["paper", "paper"], ["paper"])
        assert found.models == ["second 0", "second 1", "second 2"]

    def test_three_tools_of_one_reply_are_called_once_each(self, world: Path) -> None:
        found = self.experiment(world, "three", "probe")
        assert (found.status, sorted(found.ledger), found.reads) == ("completed", ["ink", "paper"], ["paper"])
        assert self.told(found.seen) == [4, {"bought": "ink", "amount": 3}, BOUGHT]
        assert found.models == ["three 0", "three 1"]

    def test_of_two_parallel_tools_one_is_killed(self, world: Path) -> None:
        found = self.experiment(world, "parallel")
        assert (found.status, sorted(found.ledger), found.questions) == ("waiting", ["ink", "paper"], ["buy"])
        assert found.models == ["parallel 0"]

    def test_call_ids_may_repeat(self, world: Path) -> None:
        found = self.experiment(world, "same ids", "probe")
        assert (found.status, found.ledger, found.reads) == ("completed", ["paper"], ["ink", "paper"])
        assert len(found.models) == 4

    def test_a_killed_stream_is_paid_again_and_no_other_call(self, world: Path) -> None:
        found = self.experiment(world, "stream")
        assert (found.status, found.result) == ("completed", "read")
        assert found.models == ["stream 0", "stream 1", "stream 1"]

    def test_a_sub_agent_in_a_tool(self, world: Path) -> None:
        found = self.experiment(world, "delegate", "probe")
        assert (found.status, found.result, found.ledger) == ("completed", "delegated", ["paper"])
        assert found.models == ["delegate 0", "delegated 0", "delegated 1", "delegated 2", "delegate 1"]

    def test_a_sync_run(self, world: Path) -> None:
        found = self.experiment(world, "sync", "probe")
        assert (found.status, found.result, found.ledger) == ("completed", "bought", ["paper"])
        assert found.models == ["second 0", "second 1", "second 2"]

    def test_an_approval_across_a_restart(self, world: Path) -> None:
        first = start(self.PROGRAM, world, "approval")
        assert first.returncode == 0, first.stderr
        found = resumed(self.PROGRAM, world, "approval")  # still without an answer
        assert (found.status, found.ledger, found.questions) == ("waiting", [], ["approve p1"])
        with holdfast.open(world / "agent.db") as hf:
            [question] = hf.waiting()
            assert question.payload == {"tool": "pay", "arguments": {"item": "paper"}}
            hf.answer("t", "approve p1", True)
        found = resumed(self.PROGRAM, world, "approval")
        assert (found.status, found.result, found.ledger) == ("completed", "paid", ["paper"])
        assert found.models == ["approval 0", "approval 1", "approval 2"]

    def test_a_refusal_tells_the_model(self, world: Path) -> None:
        assert start(self.PROGRAM, world, "approval").returncode == 0
        with holdfast.open(world / "agent.db") as hf:
            hf.answer("t", "approve p1", "too expensive")
        found = resumed(self.PROGRAM, world, "approval")
        assert (found.status, found.ledger) == ("completed", [])
        assert "too expensive" in str(found.seen)

    def test_each_model_turn_is_a_step(self, world: Path) -> None:
        """A kill changes nothing about it. From a turn, only what came after it is done again."""
        found = self.experiment(world, "second", "probe")
        assert found.status == "completed"
        with holdfast.open(world / "agent.db") as hf:
            thread = hf.thread("t")
            saved = [each for each in thread.history() if each.trigger in ("save", "finish")]
            ended, bought, looked_up = [thread.load(each).state["messages"] for each in saved]
            assert len(looked_up) < len(bought) < len(ended)
            thread.fork("f", at=saved[2])
            thread.rewind(saved[1])
        found = resumed(self.PROGRAM, world, "continue", "probe")
        assert (found.status, found.result, found.ledger) == ("completed", "bought", ["paper"])
        assert found.models == ["second 0", "second 1", "second 2", "second 2"]
        found = resumed(self.PROGRAM, world, "continue fork", "probe")  # from before the tool that buys
        assert (found.status, found.result, found.ledger) == ("completed", "bought", ["paper"])
        assert found.models[4:] == ["second 1", "second 2"]

    def test_a_cancelled_run_makes_no_further_call(self, world: Path) -> None:
        start(self.PROGRAM, world, "cancelled")
        with holdfast.open(world / "agent.db") as hf:
            info = hf.run_info("t")
            assert info is not None
            assert (info.status, info.reason) == ("halted", "no longer wanted")
        assert World(world).lines("models") == ["cancelled 0"]

    def test_two_processes_on_one_conversation(self, world: Path) -> None:
        """One of them holds the run, and the other does nothing."""
        found = self.experiment(world, "second", "probe")
        assert found.status == "completed"
        with holdfast.open(world / "agent.db") as hf, hf.run("u", start={"messages": []}):
            other = start(self.PROGRAM, world, "held")
        assert other.returncode == 1
        assert "LeaseHeld" in other.stderr
        assert other.returncode != -signal.SIGKILL
