"""The contract of the seam: a framework's process is killed, and its run is resumed."""

from __future__ import annotations

from pathlib import Path

import holdfast
from holdfast import Happened
from tests.adapters.kill_world import Outcome, killed_and_resumed, resumed, start

PROGRAM = "tests.adapters.small_framework"
BOUGHT = {"bought": "paper", "amount": 3}


def experiment(folder: Path, scenario: str, policy: str = "ask") -> Outcome:
    return killed_and_resumed(PROGRAM, folder / "world", scenario, policy)


def test_ask_waits_and_buys_once(tmp_path: Path) -> None:
    found = experiment(tmp_path, "second")
    assert (found.status, found.ledger, found.questions) == ("waiting", ["paper"], ["buy"])
    with holdfast.open(tmp_path / "world" / "agent.db") as hf:
        [question] = hf.waiting()
        hf.settle("t", question.effect, Happened(BOUGHT))
    found = resumed(PROGRAM, tmp_path / "world", "second")
    assert (found.status, found.result, found.ledger) == ("completed", "bought", ["paper"])
    assert found.seen[-2] == [{"said": BOUGHT}]
    assert found.models == ["second 0", "second 1", "second 2"]


def test_probe_finds_the_call(tmp_path: Path) -> None:
    found = experiment(tmp_path, "second", "probe")
    assert (found.status, found.ledger, found.reads) == ("completed", ["paper"], ["paper"])
    assert found.seen[-2] == [{"said": BOUGHT}]
    assert found.models == ["second 0", "second 1", "second 2"]


def test_give_up_tells_the_model(tmp_path: Path) -> None:
    found = experiment(tmp_path, "second", "give_up")
    assert (found.status, found.ledger) == ("completed", ["paper"])
    assert found.seen[-2][0]["said"]["outcome"] == "unknown"
    assert found.models == ["second 0", "second 1", "second 2"]


def test_rerun_buys_twice_as_declared(tmp_path: Path) -> None:
    found = experiment(tmp_path, "second", "rerun")
    assert (found.status, found.ledger, found.reads) == ("completed", ["paper", "paper"], ["paper"])
    assert found.seen[-2] == [BOUGHT]
    assert found.models == ["second 0", "second 1", "second 2"]


def test_three_tools_of_one_reply_are_called_once_each(tmp_path: Path) -> None:
    found = experiment(tmp_path, "three", "probe")
    assert (found.status, sorted(found.ledger), found.reads) == ("completed", ["ink", "paper"], ["paper"])
    assert found.seen[-2] == [4, {"bought": "ink", "amount": 3}, {"said": BOUGHT}]
    assert found.models == ["three 0", "three 1"]


def test_of_two_parallel_tools_one_is_killed(tmp_path: Path) -> None:
    found = experiment(tmp_path, "parallel")
    assert (found.status, sorted(found.ledger), found.questions) == ("waiting", ["ink", "paper"], ["buy"])


def test_call_ids_may_repeat(tmp_path: Path) -> None:
    found = experiment(tmp_path, "same ids", "probe")
    assert (found.status, found.ledger, found.reads) == ("completed", ["paper"], ["ink", "paper"])


def test_a_killed_stream_is_paid_again_and_no_other(tmp_path: Path) -> None:
    found = experiment(tmp_path, "stream")
    assert (found.status, found.result) == ("completed", "to be or; to be or")
    assert found.models == ["stream 1", "stream 2", "stream 2"]
    with holdfast.open(tmp_path / "world" / "agent.db") as hf:
        assert [effect.result for effect in hf.effects("t")] == ["to be or", "to be or"]


def test_a_sub_agent_in_a_tool(tmp_path: Path) -> None:
    found = experiment(tmp_path, "delegate", "probe")
    assert (found.status, found.result, found.ledger, found.reads) == ("completed", "delegated", ["paper"], ["paper"])
    assert found.models == ["delegate 0", "delegated 0", "delegated 1", "delegated 2", "delegate 1"]


def test_parallel_sub_agents_get_their_own_answers(tmp_path: Path) -> None:
    found = experiment(tmp_path, "sub-agents", "probe")
    assert (found.status, sorted(found.ledger)) == ("completed", ["ink", "paper"])
    ink, paper = found.result.split("; ")
    assert ink.startswith("ink bought")
    assert paper.startswith("paper bought")
    assert len(found.models) == 4


def test_an_async_framework_in_a_sync_run(tmp_path: Path) -> None:
    found = experiment(tmp_path, "sync run", "probe")
    assert (found.status, found.ledger, found.reads) == ("completed", ["paper"], ["paper"])
    assert found.models == ["second 0", "second 1", "second 2"]


def test_nothing_is_called_again_when_the_run_is_completed(tmp_path: Path) -> None:
    experiment(tmp_path, "second", "probe")
    found = resumed(PROGRAM, tmp_path / "world", "second", "probe")
    assert (found.status, found.result, len(found.models)) == ("completed", "bought", 3)
    assert start(PROGRAM, tmp_path / "world", "second").returncode == 0
