"""Threads of a LangGraph graph on the command line: log, show, diff, inbox, answer, resume, fork and rewind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.adapters.langgraph import HoldfastSaver
from tests.cli.conftest import Folder

APP = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

def write(state):
    return {"messages": [AIMessage("a draft")]}

def review(state):
    return {"messages": [AIMessage(f"reviewed: {interrupt({'question': 'publish?'})}")]}

builder = StateGraph(MessagesState)
builder.add_node("write", write)
builder.add_node("review", review)
builder.add_edge(START, "write")
builder.add_edge("write", "review")
"""
CONFIG: Any = {"configurable": {"thread_id": "essay"}}


@pytest.fixture
def asked(folder: Folder) -> Folder:
    folder.write("app.py", APP)
    found: dict[str, Any] = {}
    exec(compile(APP, "app.py", "exec"), found)  # noqa: S102 - the same graph as in the folder
    with HoldfastSaver(folder.store, durability="off") as saver:
        found["builder"].compile(checkpointer=saver).invoke({"messages": ["go"]}, CONFIG, durability="sync")
    return folder


def said(folder: Folder, *words: str) -> str:
    code, out, err = folder.run(*words)
    assert code == 0, err
    return out


def test_a_graph_is_read_by_its_nodes_and_channels(asked: Folder) -> None:
    assert [line.split("  ")[3] for line in said(asked, "log", "essay").splitlines()] == ["write", "__start__", "input"]
    assert "a draft" in said(asked, "show", "essay")
    assert "$checkpoint" not in said(asked, "show", "essay", "--tree")
    assert json.loads(said(asked, "show", "essay", "--raw"))["$checkpoint"]
    [change] = json.loads(said(asked, "diff", "essay", "--json"))["changes"]
    assert (change["path"], change["after"]["content"]) == ("$.messages[1]", "a draft")
    assert "$checkpoint" in said(asked, "diff", "essay", "--raw")


def test_a_question_is_answered_with_the_graph(asked: Folder) -> None:
    [item] = json.loads(said(asked, "inbox", "--json"))["inbox"]
    [decision] = item["decisions"]
    assert decision["payload"] == {"question": "publish?"}
    code, out, err = asked.run("inbox")
    assert out.splitlines()[1:] == [
        '  asks review: {"question": "publish?"}',
        "    holdfast answer essay review VALUE --graph APP",
    ]
    assert "APP in a command names your handlers, or the graph of a LangGraph thread" in err
    assert "holdfast answer essay review VALUE --graph APP" in said(asked, "show", "essay")
    code, _, err = asked.run("answer", "essay", decision["name"], '"yes"')
    assert code == 2, err
    assert "--graph" in err
    answered = said(asked, "answer", "essay", decision["name"], '"yes"', "--graph", "app:builder")
    assert "completed" in answered
    assert "reviewed: yes" in said(asked, "show", "essay")
    assert json.loads(said(asked, "inbox", "--json"))["inbox"] == []


def test_a_fork_and_a_rewind_ask_again(asked: Folder) -> None:
    said(asked, "answer", "essay", "review", '"yes"', "--graph", "app:builder")
    said(asked, "fork", "essay@2", "other")
    assert "waiting" in said(asked, "resume", "app:builder", "other")
    said(asked, "rewind", "essay@1")
    assert "waiting" in said(asked, "resume", "app:builder", "essay")
    assert "reviewed: no" not in said(asked, "show", "essay")
    said(asked, "answer", "essay", "review", '"no"', "--graph", "app:builder")
    assert "reviewed: no" in said(asked, "show", "essay")
    code, _, err = asked.run("resume", "app:builder", "essay")
    assert code == 4, err
    assert "no node left" in err
