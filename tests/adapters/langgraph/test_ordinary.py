"""Threads that LangGraph writes are ordinary ones: every verb of Holdfast's works on them, and the graph goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Command

import holdfast
from holdfast import Checkpoint, Conflict, Holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.inspect import timeline
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.acting import World as Ledger
from tests.adapters.langgraph.acting import build as with_journal
from tests.adapters.langgraph.acting import once
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.graphs import call

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")


def config(thread: str = "t") -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


def ask(graph: Any, *texts: str, thread: str = "t") -> Any:
    for text in texts:
        graph.invoke({"messages": [HumanMessage(text, id=f"human-{text}")]}, config(thread), durability="sync")
    return graph


def ids(state: Any) -> list[str]:
    return [message.id for message in state.values["messages"]]


def steps(hf: Holdfast, thread: str = "t") -> list[Checkpoint]:
    """The history of a thread, without the row that the first invocation created it with."""
    *found, first = hf.thread(thread).history()
    assert first.trigger == "new"
    return found


def boundaries(hf: Holdfast, thread: str = "t") -> list[Checkpoint]:
    """The checkpoints after which a turn was over, oldest first."""
    rows = steps(hf, thread)[::-1]
    return [
        row for row, after in zip(rows, [*rows[1:], None], strict=True) if after is None or after.trigger == "input"
    ]


# -- looking ----------------------------------------------------------------------------------------------------------


def test_threads_are_listed(savers: Savers) -> None:
    saver = savers.open()
    ask(graphs.chat(saver), "a", thread="one")
    ask(graphs.chat(saver), "a", "b", thread="two")
    assert [(info.name, info.status) for info in saver.hf.threads()] == [("one", "completed"), ("two", "completed")]
    assert [info.step for info in saver.hf.threads()] == [2, 5]


def test_an_agent_that_has_called_tools_is_completed(savers: Savers) -> None:
    saver = savers.open()
    ask(graphs.agent(saver), "a", thread="one")
    assert [(info.name, info.status) for info in saver.hf.threads()] == [("one", "completed")]
    graph = timeline(saver.hf, "one").graph
    assert graph is not None
    assert graph.next == ()


def test_the_history_has_each_step_and_what_led_to_it(savers: Savers) -> None:
    saver = savers.open()
    ask(graphs.chat(saver), "a")
    history = steps(saver.hf)
    assert [each.step for each in history] == [2, 1, 0]  # one row for each superstep
    assert [each.trigger for each in history] == ["loop", "loop", "input"]
    assert (history[0].trigger, history[0].metadata["step"]) == ("loop", 1)


def test_messages_can_be_read(savers: Savers) -> None:
    saver = savers.open()
    ask(graphs.agent(saver), "what is 1 + 2?")
    found = saver.hf.thread("t").load("@-1").state
    assert [message["payload"][1] for message in found["messages"]] == [
        "HumanMessage",
        "AIMessage",
        "ToolMessage",
        "ToolMessage",
        "AIMessage",
        "ToolMessage",
        "AIMessage",
    ]
    first, said = found["messages"][0]["payload"][2], found["messages"][1]["payload"][2]
    assert first["content"] == "what is 1 + 2?"
    assert [(one["name"], one["args"]) for one in said["tool_calls"]] == [
        ("add", {"a": 1, "b": 2}),
        ("look_up", {"word": "hold"}),
    ]
    assert first["id"] == "human-what is 1 + 2?"


def test_a_diff_names_the_message_that_came(savers: Savers) -> None:
    saver = savers.open()
    ask(graphs.chat(saver), "a", "b")
    before, after = boundaries(saver.hf)
    changes = saver.hf.thread("t").diff(before.id, after.id).changes
    added = [change.path for change in changes if change.kind == "added" and change.path.startswith("$.messages")]
    assert added == ["$.messages[2]", "$.messages[3]"]


# -- moving -----------------------------------------------------------------------------------------------------------


def test_after_a_rewind_the_graph_goes_on_from_there(savers: Savers) -> None:
    saver = savers.open()
    graph = ask(graphs.chat(saver), "a", "b", "c")
    first, *_ = boundaries(saver.hf)
    handle = savers.handle()
    handle.thread("t").rewind(first.id)
    for one in (graph, graphs.chat(savers.open())):
        assert ids(one.get_state(config())) == ["human-a", "reply-1"]
    ask(graph, "d")
    for one in (graph, graphs.chat(savers.open())):
        assert ids(one.get_state(config())) == ["human-a", "reply-1", "human-d", "reply-3"]
    assert saver.hf.verify(deep=True).ok


def test_every_checkpoint_can_be_rewound_to(local: Savers) -> None:
    """Also one in the middle of a step, with some of its writes: the graph does what is left."""
    saver = local.open()
    graph = ask(graphs.agent(saver), "a")
    whole = graph.get_state(config())
    for row in steps(saver.hf):
        local.handle().thread("t").rewind(row.id)
        state = graph.get_state(config())
        assert state.metadata["step"] == row.metadata["step"]
        graph.invoke(None, config(), durability="sync")
        assert ids(graph.get_state(config())) == ids(whole)
    assert saver.hf.verify(deep=True).ok


def test_a_run_that_was_under_way_when_its_thread_was_rewound_is_refused(local: Savers) -> None:
    saver = local.open()
    graph = ask(graphs.chat(saver), "a", "b")
    first, *_ = boundaries(saver.hf)
    latest = saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ""}})
    assert latest is not None
    local.handle().thread("t").rewind(first.id)
    checkpoint = {**latest.checkpoint, "id": "1ffe0000-0000-6000-8000-000000000000"}
    with pytest.raises(Conflict):
        saver.put(latest.config, checkpoint, {"source": "loop", "step": 9}, {})  # type: ignore[arg-type]  # a dict is what LangGraph passes
    assert ids(graph.get_state(config())) == ["human-a", "reply-1"]


def test_a_fork_is_a_thread_of_langgraphs(savers: Savers) -> None:
    saver = savers.open()
    graph = ask(graphs.chat(saver), "a", "b")
    first, _ = boundaries(saver.hf)
    saver.hf.thread("t").fork("other", at=first.id)
    for one in (graph, graphs.chat(savers.open())):
        assert ids(one.get_state(config("other"))) == ["human-a", "reply-1"]
    ask(graph, "c", thread="other")
    for one in (graph, graphs.chat(savers.open())):
        assert ids(one.get_state(config("other"))) == ["human-a", "reply-1", "human-c", "reply-3"]
        assert ids(one.get_state(config())) == ["human-a", "reply-1", "human-b", "reply-3"]
    assert saver.hf.verify(deep=True).ok


def test_a_fork_has_the_history_that_it_was_made_of(local: Savers) -> None:
    saver = local.open()
    graph = ask(graphs.chat(saver), "a", "b")
    saver.hf.thread("t").fork("other")
    ask(graph, "c", thread="other")
    state = graph.get_state(config("other"))
    seen = 0
    while state.parent_config is not None:
        parent = graph.get_state(state.parent_config)
        if parent.created_at is None:
            break
        state, seen = parent, seen + 1
    assert seen >= 2, "at least what was done in it"


def test_a_fork_of_a_question_can_be_answered_otherwise(local: Savers) -> None:
    saver = local.open()
    graph = graphs.with_subgraph(False)(saver)
    graph.invoke({"log": ["go"]}, config(), durability="sync")
    saver.hf.thread("t").fork("other")
    here = graph.invoke(Command(resume="yes"), config(), durability="sync")
    there = graph.invoke(Command(resume="no"), config("other"), durability="sync")
    assert "answered yes" in here["log"]
    assert "answered no" in there["log"]


# -- keeping ----------------------------------------------------------------------------------------------------------


def use_all(saver: HoldfastSaver, ledger: Path) -> None:
    """Every kind of use that leaves its own traces in a store."""
    ask(graphs.chat(saver), "a", "b", "c", thread="chat")
    ask(graphs.react(saver), "a", "b", thread="react")
    for turn in range(5):
        graphs.delta(3)(saver).invoke({"turn": turn, "line": []}, config("delta"))
    graphs.map_reduce(saver).invoke({"number": 3, "log": []}, config("map"))
    for remembers in (False, True):
        inner = graphs.with_subgraph(remembers)(saver)
        inner.invoke({"log": ["go"]}, config(f"sub-{remembers}"))
        inner.invoke(Command(resume="yes"), config(f"sub-{remembers}"))
    chat = graphs.chat(saver)
    older = list(chat.get_state_history(config("chat")))[3]
    chat.invoke({"messages": [HumanMessage("fork", id="fork")]}, older.config)
    chat.update_state(config("chat"), {"messages": [AIMessage("edited", id="edited")]})
    late = {"configurable": {"thread_id": "chat", "checkpoint_ns": "", **older.config["configurable"]}}
    saver.put_writes(late, [("messages", [AIMessage("late", id="late")])], "late task")  # type: ignore[arg-type]  # a dict is what LangGraph passes
    saver.copy_thread("react", "copied")
    saver.copy_thread("delta", "pruned")
    saver.prune(["pruned"])
    graphs.delta(3)(saver).invoke({"turn": 5, "line": []}, config("pruned"))
    graph = graphs.chat(saver)
    for run in ("r1", "r2", "r3"):
        given = {"messages": [HumanMessage(run, id=run)]}
        graph.invoke(given, {**config("runs"), "metadata": {"run_id": run}})
    saver.delete_for_runs(["r2"])
    lines = [AIMessage("", tool_calls=[call("once", 1, text="a")]), AIMessage("Done.")]
    ask(with_journal(saver, [once(Ledger(ledger))], "agent", lines), "a", thread="acting")


THREADS = {
    *("acting", "acting%tools", "chat", "copied", "delta", "map", "pruned", "react", "runs", "sub-False", "sub-True"),
}


def answers(saver: HoldfastSaver) -> dict[str, Any]:
    """What all of LangGraph's threads read as."""
    found: dict[str, Any] = {}
    for each in saver.list(None):
        place = each.config.get("configurable", {})
        at = (place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"])
        found[repr(at)] = (each.checkpoint, each.metadata, each.pending_writes)
    return found


def test_the_store_is_sound_after_every_kind_of_use(savers: Savers, tmp_path: Path) -> None:
    saver = savers.open()
    use_all(saver, tmp_path / "ledger")
    assert {info.name.partition("#")[0] for info in saver.hf.threads()} == THREADS
    report = saver.hf.verify(deep=True)
    assert report.ok, report.problems
    before = answers(saver)
    saver.hf.optimize()
    assert saver.hf.verify(deep=True).ok
    assert answers(savers.open()) == before


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_backup_and_a_repaired_copy_read_the_same(kind: str, tmp_path: Path) -> None:
    url = str(tmp_path / "a.db") if kind == "sqlite" else f"dir:{tmp_path / 'a'}"
    with HoldfastSaver(url, durability="off") as saver:
        use_all(saver, tmp_path / "ledger")
        before = answers(saver)
        copies = [f"{url}-{name}" for name in ("backup", "repaired")]
        assert saver.hf.backup(copies[0]).report.ok
        repaired = saver.hf.repair(copies[1])
        assert not repaired.lost
    for copy in copies:
        with HoldfastSaver(copy) as saver:
            assert answers(saver) == before
            assert saver.hf.verify(deep=True).ok
            ask(graphs.chat(saver), "again", thread="chat")


def test_an_erased_thread_is_gone(savers: Savers, tmp_path: Path) -> None:
    saver = savers.open()
    use_all(saver, tmp_path / "ledger")
    left = {name: value for name, value in answers(saver).items() if "'chat'" not in name}
    saver.hf.erase("chat")
    assert graphs.chat(saver).get_state(config("chat")).created_at is None
    assert answers(saver) == left
    assert saver.hf.verify(deep=True).ok
    ask(graphs.chat(saver), "anew", thread="chat")
    assert ids(graphs.chat(savers.open()).get_state(config("chat"))) == ["human-anew", "reply-1"]


def test_a_dropped_thread_is_gone_for_the_graph_that_knew_it(savers: Savers) -> None:
    saver = savers.open()
    graph = ask(graphs.chat(saver), "a", "b")
    savers.handle().thread("t").drop()
    assert graph.get_state(config()).created_at is None
    ask(graph, "anew")
    assert ids(graph.get_state(config())) == ["human-anew", "reply-1"]


def test_retention_of_the_handle_leaves_a_graph_that_goes_on(local: Savers) -> None:
    handle = local.handle(retention=holdfast.Retention(keep_last=3))
    saver = HoldfastSaver(handle)
    graph = ask(graphs.chat(saver), "a", "b", "c")
    handle.maintain()
    assert ids(graph.get_state(config()))[:2] == ["human-a", "reply-1"]
    ask(graph, "d")
    assert len(ids(graphs.chat(local.open()).get_state(config()))) == 8
    assert handle.verify(deep=True).ok
