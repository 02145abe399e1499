"""Growth: a superstep stores what is new in it, whatever the graph; a message is stored once."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import create_react_agent
from langgraph.types import Send

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.stores.contract import Commit, Position
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.conftest import Savers
from tests.delta.engine import Added
from tests.selection import tries

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

OVERHEAD = 1_300
"""Bytes of a commit that are not of the values: versions, ids, metadata, references."""

SHORT_MAX = 2_048
"""A list up to this size is stored anew when it grows."""


class Watched:
    """A saver on a SQLite file, and all that was committed through it, before it was compressed."""

    def __init__(self, savers: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
        self.savers = savers
        self.handle = savers.handle()
        self.saver = HoldfastSaver(self.handle)
        self.commits: list[Commit] = []
        store = self.handle.context.store
        commit = store.commit

        def watched(given: Commit) -> Position:
            position = commit(given)
            self.commits.append(given)
            return position

        monkeypatch.setattr(store, "commit", watched)

    def took(self, work: Callable[..., Any], *args: Any) -> list[int]:
        """The bytes of each commit that some work makes."""
        before = len(self.commits)
        work(*args)
        return [Added(commit).bytes for commit in self.commits[before:]]

    def occurrences(self, mark: str) -> int:
        """How often a text was stored, wherever."""
        return sum(blob.count(mark.encode()) for commit in self.commits for blob in _blobs(commit))


def _blobs(commit: Commit) -> Iterator[bytes]:
    yield from (cell for run in commit.appends for cell in run.cells)
    yield from (piece for value in commit.blobs for piece in value.pieces)
    yield commit.row.skeleton
    yield commit.row.meta


@pytest.fixture
def watched(local: Savers, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(local, monkeypatch)


def text(mark: str, size: int) -> str:
    """A text that begins with a mark, is as long as that, and is like no other."""
    source = random.Random(mark)
    words = [mark]
    while sum(map(len, words)) + len(words) < size:
        words.append(f"w{source.randrange(10**6)}")
    return " ".join(words)


CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def chat(watched: Watched, *, alone: bool = False) -> Any:
    """Answers each message with 300 characters; `alone`: not in a list."""

    def answer(state: Chat) -> dict[str, Any]:
        reply = AIMessage(text(f"answer-{len(state['messages'])}-", 300))
        return {"messages": reply if alone else [reply]}

    graph = StateGraph(Chat)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=watched.saver)


def say(graph: Any, turn: int, *, alone: bool = False, size: int = 3_000) -> Any:
    question = HumanMessage(text(f"question-{turn}-", size))
    return graph.invoke({"messages": question if alone else [question]}, CONFIG, durability="sync")


@pytest.mark.parametrize("alone", [False, True], ids=["in a list", "alone"])
def test_a_message_is_stored_once_in_the_list(watched: Watched, alone: bool) -> None:
    graph = chat(watched, alone=alone)
    for turn in range(40):
        say(graph, turn, alone=alone)
    # The very first messages are stored with the list, as long as that is short.
    for turn in range(2, 40):
        assert watched.occurrences(f"question-{turn}-") <= 2  # as the input of the graph, and in the list
        assert watched.occurrences(f"answer-{2 * turn + 1}-") == 1
    assert len(graph.get_state(CONFIG).values["messages"]) == 80


def test_after_each_superstep_only_what_is_new_was_stored(watched: Watched) -> None:
    graph, others = chat(watched), [0]
    for turn in range(60):
        *new, started, first, second = watched.took(say, graph, turn)
        others = [first, second]
        assert len(new) == (turn == 0)  # the first invocation creates the thread
        # the checkpoint after the input, and the last one; writes are no commits
        assert started < 3_300 + OVERHEAD
        assert others[0] < 3_300 + OVERHEAD
        assert others[1] < 300 + OVERHEAD + SHORT_MAX
    assert others[1] < 300 + OVERHEAD


def test_the_messages_of_a_conversation_lie_together(watched: Watched) -> None:
    """In one span: what a checkpoint says of where they are does not grow, and they are read in one go."""
    graph = chat(watched)
    for turn in range(40):
        say(graph, turn)
        assert len(watched.commits[-1].row.refs.spans) <= 8


def test_another_process_that_goes_on_stores_no_more(local: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in range(12):
        watched = Watched(local, monkeypatch)
        graph = chat(watched)
        assert sum(watched.took(say, graph, turn)) < 2 * 3_300 + 3 * OVERHEAD + 2 * SHORT_MAX
        assert watched.occurrences(f"question-{turn}-") <= 2
        assert watched.occurrences(f"question-{turn - 1}-") == 0


def test_a_message_that_was_changed_in_place_is_stored_and_comes_back(watched: Watched) -> None:
    class Edited(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]
        turn: int

    def answer(state: Edited) -> dict[str, Any]:
        old = state["messages"][3]
        old.additional_kwargs.setdefault("seen", {"turns": []})["turns"].append(f"mark-{state['turn']}-")
        return {"messages": [AIMessage(f"reply {state['turn']}")]}

    graph: Any = StateGraph(Edited)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph = graph.compile(checkpointer=watched.saver)
    first = [HumanMessage(text(f"first-{number}-", 500)) for number in range(50)]
    for turn in range(5):
        graph.invoke({"messages": first if not turn else [], "turn": turn}, CONFIG, durability="sync")
        expected = [f"mark-{number}-" for number in range(turn + 1)]
        assert graph.get_state(CONFIG).values["messages"][3].additional_kwargs["seen"]["turns"] == expected
        fresh = HoldfastSaver(watched.savers.handle()).get_tuple({"configurable": {"thread_id": "t"}})
        assert fresh is not None
        found: list[BaseMessage] = fresh.checkpoint["channel_values"]["messages"]
        assert found[3].additional_kwargs["seen"]["turns"] == expected
        assert [one.content for one in found[:50]] == [one.content for one in first]
    assert watched.occurrences("first-4-") == 2
    assert watched.occurrences("first-3-") == 7  # as an input, in the list, and as it was after each turn


# -- other graphs ----------------------------------------------------------------------------------------------------


@tool
def fetch(number: int) -> str:
    """Fetch a document."""
    return text(f"document-{number}-", 2_000)


def _call(number: int) -> ToolCall:
    return {"name": "fetch", "args": {"number": number}, "id": f"call-{number}", "type": "tool_call"}


def react(watched: Watched) -> Callable[[int], Any]:
    """An agent that calls two tools at once in each turn: each task is sent a copy of the whole state."""

    class Model(graphs.Scripted):
        def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Any:
            turn = sum(isinstance(one, HumanMessage) for one in messages)
            made = super()._generate(messages, *args, **options)
            if isinstance(messages[-1], HumanMessage):
                calls = [_call(number) for number in (2 * turn, 2 * turn + 1)]
                made.generations[0].message = AIMessage("", tool_calls=calls)
            else:
                made.generations[0].message = AIMessage(text(f"reply-{turn}-", 400))
            return made

    agent: Any = create_react_agent(Model(lines=[AIMessage("x")]), [fetch], checkpointer=watched.saver)

    def turn(number: int) -> Any:
        asked = HumanMessage(text(f"question-{number}-", 600))
        return agent.invoke({"messages": [asked]}, CONFIG, durability="sync")

    return turn


def files(watched: Watched) -> Callable[[int], Any]:
    """500 files, of which one changes in each turn; all of them are handed to LangGraph each time."""

    def edit(state: Any) -> dict[str, Any]:
        turn = state["turn"]
        changed = {f"file-{(turn * 37) % 500}": text(f"edit-{turn}-", 600)}
        all_of_them = {f"file-{number}": text(f"file-{number}-", 600) for number in range(500)}
        return {"files": changed if turn else all_of_them}

    graph: Any = StateGraph(graphs.Files)
    graph.add_node("edit", edit)
    graph.add_edge(START, "edit")
    graph = graph.compile(checkpointer=watched.saver)
    return lambda turn: graph.invoke({"turn": turn}, CONFIG, durability="sync")


def newest(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keeps one entry of each name, in the order of the names."""
    found = {one["name"]: one for one in [*old, *new]}
    return [found[name] for name in sorted(found)]


class Notes(TypedDict, total=False):
    notes: Annotated[list[dict[str, Any]], newest]
    turn: int


def custom(watched: Watched) -> Callable[[int], Any]:
    """A reducer of the user's own, which puts what is new in the middle of the list."""

    def note(state: Notes) -> dict[str, Any]:
        turn = state["turn"]
        return {"notes": [{"name": f"{(turn * 7) % 11}-{turn}", "text": text(f"note-{turn}-", 900), "tags": ["a", 1]}]}

    graph: Any = StateGraph(Notes)
    graph.add_node("note", note)
    graph.add_edge(START, "note")
    graph = graph.compile(checkpointer=watched.saver)
    return lambda turn: graph.invoke({"turn": turn}, CONFIG, durability="sync")


class Deltas(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(graphs.append, snapshot_frequency=1_000)]
    messages: Annotated[list[AnyMessage], add_messages]


def delta(watched: Watched) -> Callable[[int], Any]:
    """A channel that LangGraph stores as its changes. A snapshot of it, now and then, costs as much as it holds."""

    def work(state: Deltas) -> dict[str, Any]:
        count = len(state["log"])
        return {"log": [{"text": text(f"work-{count}-", 800)}], "messages": [AIMessage(text(f"reply-{count}-", 400))]}

    graph: Any = StateGraph(Deltas)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph = graph.compile(checkpointer=watched.saver)
    return lambda turn: graph.invoke({"log": [{"text": text(f"input-{turn}-", 400)}]}, CONFIG, durability="sync")


def fan_out(watched: Watched) -> Callable[[int], Any]:
    """Tasks that are sent the conversation so far, each for itself."""

    class Fan(TypedDict, total=False):
        messages: Annotated[list[AnyMessage], add_messages]
        found: Annotated[list[str], operator.add]

    graph: Any = StateGraph(Fan)
    graph.add_node("plan", lambda state: {"messages": [AIMessage(text(f"plan-{len(state['messages'])}-", 400))]})
    graph.add_node("work", lambda state: {"found": [f"{len(state['messages'])} seen"]})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan", lambda state: [Send("work", {"messages": state["messages"]}) for _ in range(3)], ["work"]
    )
    graph = graph.compile(checkpointer=watched.saver)
    return lambda turn: say(graph, turn, size=600)


def many_channels(watched: Watched) -> Callable[[int], Any]:
    """More channels than a state names one by one."""
    make: Any = TypedDict  # of what is only known here, which a type checker cannot follow
    schema = make("schema", {"messages": Chat.__annotations__["messages"], **{f"c{n}": dict for n in range(80)}})

    def work(state: Any) -> dict[str, Any]:
        count = len(state["messages"])
        return {"messages": [AIMessage(text(f"reply-{count}-", 400))], f"c{count % 80}": {"at": count}}

    graph: Any = StateGraph(schema)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph = graph.compile(checkpointer=watched.saver)

    def turn(number: int) -> Any:
        given = {f"c{n}": {"n": n, "pad": "x" * 20} for n in range(80)} if not number else {}
        asked = HumanMessage(text(f"question-{number}-", 600))
        return graph.invoke({"messages": [asked], **given}, CONFIG, durability="sync")

    return turn


TURNS = tries(30, 8)
GRAPHS: list[tuple[Any, int, int]] = [
    # With the bytes that are new in a turn, and how many commits it makes.
    (react, 600 + 2 * 2_000 + 400, 5),
    (files, 600, 3),
    (custom, 900, 3),
    (delta, 400 + 800 + 400, 3),
    (fan_out, 600 + 400, 4),
]


@pytest.mark.parametrize(("build", "new", "commits"), GRAPHS, ids=[build.__name__ for build, *_ in GRAPHS])
def test_a_turn_stores_what_is_new_in_it(watched: Watched, build: Any, new: int, commits: int) -> None:
    turn = build(watched)
    took = [watched.took(turn, number) for number in range(TURNS)]
    for taken in took[1:]:
        assert len(taken) <= commits
        # Inputs are stored as such, too; what is sent to a task may have the newest messages once more.
        assert sum(taken) < 2.3 * new + commits * OVERHEAD + 10 * SHORT_MAX


@pytest.mark.parametrize("build", [react, files, custom, delta, many_channels], ids=lambda one: one.__name__)
def test_twice_as_many_turns_take_twice_the_bytes(watched: Watched, build: Any) -> None:
    turn = build(watched)
    turn(0)
    first = sum(sum(watched.took(turn, number)) for number in range(1, TURNS + 1))
    second = sum(sum(watched.took(turn, number)) for number in range(TURNS + 1, 2 * TURNS + 1))
    assert second < 1.5 * first


def test_a_file_is_stored_when_it_changes_and_not_again(watched: Watched) -> None:
    turn = files(watched)
    for number in range(6):
        turn(number)
    assert {watched.occurrences(f"file-{number}-") for number in range(500)} <= {1, 2}
    assert all(watched.occurrences(f"edit-{number}-") <= 2 for number in range(1, 6))  # a write, then an entry


def test_a_tool_message_is_no_different(watched: Watched) -> None:
    graph: Any = StateGraph(Chat)
    graph.add_node("a", lambda state: {"messages": ToolMessage(text("result-", 900), tool_call_id="1")})
    graph.add_edge(START, "a")
    graph.compile(checkpointer=watched.saver).invoke({"messages": text("asked", 3_000)}, CONFIG, durability="sync")
    assert watched.occurrences("result-") == 1
