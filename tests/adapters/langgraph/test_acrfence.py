"""The attacks of ACRFence (arXiv 2603.20625) on a graph: time travel, and the model words its call differently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, wrap_tools
from holdfast.errors import EffectMismatch, InvalidArgument
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.graphs import Chat

CONFIG: Any = {"configurable": {"thread_id": "t"}}
CALLS = {
    "pay": ({"invoice": "A-17", "reference": "rent"}, {"invoice": "A-17", "reference": "the rent for May"}),
    "spend": ({"token": "approval-1", "purpose": "refund"}, {"token": "approval-1", "purpose": "the attacker"}),
}


class Service:
    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self, *, is_declared: bool) -> list[Any]:
        declared: Any = {"identity": ("invoice",)} if is_declared else {}
        declare: Any = holdfast.tool(effect="irreversible", **declared)

        @tool
        @declare  # type: ignore[untyped-decorator]
        def pay(invoice: str, reference: str) -> str:
            """Pay an invoice."""
            self.done.append(reference)
            return f"paid for {reference}"

        @tool
        def spend(token: str, purpose: str) -> str:
            """Use a credential that is valid once."""
            self.done.append(purpose)
            return f"spent for {purpose}"

        return [pay, spend]


def graph_of(
    savers: Savers,
    service: Service,
    name: str,
    *,
    is_declared: bool,
    is_compiled: bool = True,
    schema: type[Chat] = Chat,
    **options: Any,
) -> Any:
    saver = savers.open()
    declare = {"spend": {"identity": lambda token, **_: token}} if is_declared else {}
    tools = wrap_tools(service.tools(is_declared=is_declared), saver, **{"declare": declare, **options})
    asked = iter(range(100))

    def model(state: Chat) -> dict[str, Any]:
        last = state["messages"][-1]
        if last.type == "tool":
            return {"messages": [AIMessage(f"Done: {last.content}")]}
        number = next(asked)
        calls = [{"name": name, "args": CALLS[name][number], "id": f"call-{number}"}]
        return {"messages": [AIMessage("", tool_calls=calls, id=f"message-{number}")]}

    graph: Any = StateGraph(schema)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver) if is_compiled else graph


def travelled(graph: Any) -> str:
    """Act once, go back to before the model was asked, and run again. The answer of the second time."""
    graph.invoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
    before = [each for each in graph.get_state_history(CONFIG) if each.next == ("model",)][-1]
    return str(graph.invoke(None, before.config)["messages"][-1].content)


@pytest.mark.parametrize("name", ["pay", "spend"])
def test_time_travel_in_other_words_acts_once(savers: Savers, name: str) -> None:
    service = Service()
    answer = travelled(graph_of(savers, service, name, is_declared=True))
    first = list(CALLS[name][0].values())[1]
    assert service.done == [first]
    assert answer.endswith(f"for {first}")


@pytest.mark.parametrize("name", ["pay", "spend"])
def test_a_second_thread_of_the_graph_acts_once(savers: Savers, name: str) -> None:
    service = Service()
    graph = graph_of(savers, service, name, is_declared=True)
    graph.invoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
    answer = graph.invoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "other"}})
    assert len(service.done) == 1
    assert str(answer["messages"][-1].content).endswith(f"for {service.done[0]}")


def test_an_identity_that_a_tool_does_not_have_is_refused_when_it_is_wrapped(savers: Savers) -> None:
    saver = savers.open()
    wrong: list[Any] = [("invoce",), lambda invoce: invoce]
    for identity in wrong:
        with pytest.raises(InvalidArgument, match="invoce"):
            wrap_tools(Service().tools(is_declared=False), saver, declare={"pay": {"identity": identity}})


@pytest.mark.parametrize("is_by_name", [True, False])
def test_a_default_counts_as_given(savers: Savers, monkeypatch: pytest.MonkeyPatch, is_by_name: bool) -> None:
    monkeypatch.setitem(CALLS, "pay", ({"invoice": "A"}, {"invoice": "A", "currency": "EUR"}))
    done: list[str] = []
    identity: Any = {"identity": ("invoice", "currency")}
    declared: Any = holdfast.tool(effect="irreversible", **({} if is_by_name else identity))

    @tool
    @declared  # type: ignore[untyped-decorator]
    def pay(invoice: str, currency: str = "EUR") -> str:
        """Pay an invoice."""
        done.append(invoice)
        return f"paid for {invoice}"

    monkeypatch.setattr(Service, "tools", lambda self, is_declared: [pay])
    options: Any = {"declare": {"pay": identity}} if is_by_name else {}
    assert travelled(graph_of(savers, Service(), "pay", is_declared=False, **options)).endswith("for A")
    assert done == ["A"]


# -- without an identity ----------------------------------------------------------------------------------------------


def asked_about(answer: Any) -> dict[str, Any]:
    """The question of a graph that was interrupted."""
    [asked] = answer["__interrupt__"]
    question: dict[str, Any] = asked.value
    return question


@pytest.mark.parametrize("name", ["pay", "spend"])
def test_without_an_identity_a_person_is_asked(savers: Savers, name: str) -> None:
    service = Service()
    graph = graph_of(savers, service, name, is_declared=False)
    graph.invoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
    before = [each for each in graph.get_state_history(CONFIG) if each.next == ("model",)][-1]
    question = asked_about(graph.invoke(None, before.config))
    first, second = (list(each.values())[1] for each in CALLS[name])
    assert service.done == [first]
    assert question["question"] == "may repeat"
    assert question["arguments"] == CALLS[name][1]
    assert first in question["reason"]
    assert second in question["reason"]
    answer = graph.invoke(Command(resume={"effect": question["effect"], "outcome": "not_done"}), CONFIG)
    assert service.done == [first, second], "a person allowed it"
    assert str(answer["messages"][-1].content).endswith(f"for {second}")


def test_without_an_identity_a_person_can_tell_the_result(savers: Savers) -> None:
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=False)
    graph.invoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
    before = [each for each in graph.get_state_history(CONFIG) if each.next == ("model",)][-1]
    question = asked_about(graph.invoke(None, before.config))
    known = {"effect": question["effect"], "outcome": "happened", "result": "paid for rent"}
    answer = graph.invoke(Command(resume=known), CONFIG)
    assert service.done == ["rent"]
    assert answer["messages"][-1].content == "Done: paid for rent"


def test_without_an_identity_the_same_words_get_the_recorded_result(
    savers: Savers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CALLS, "pay", (CALLS["pay"][0],) * 2)
    service = Service()
    answer = travelled(graph_of(savers, service, "pay", is_declared=False))
    assert service.done == ["rent"]
    assert answer == "Done: paid for rent"


def test_live_acts_again(savers: Savers) -> None:
    service = Service()
    answer = travelled(graph_of(savers, service, "pay", is_declared=False, effects="live"))
    assert service.done == ["rent", "the rent for May"]
    assert answer.endswith("for the rent for May")


def test_whether_a_call_may_repeat_another_is_known_without_reading_older_states(
    local: Savers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CALLS, "pay", tuple({"invoice": f"A-{n}", "reference": f"{n}"} for n in range(4)))
    service = Service()
    graph = graph_of(local, service, "pay", is_declared=False)
    read: list[Any] = []
    get_tuple = HoldfastSaver.get_tuple

    def counted(saver: HoldfastSaver, config: Any) -> Any:
        read.append(config)
        return get_tuple(saver, config)

    monkeypatch.setattr(HoldfastSaver, "get_tuple", counted)
    for _ in range(4):
        graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    assert len(service.done) == 4
    assert len(read) == 4, "one at the start of each invocation"


def test_each_abandoned_call_is_asked_about(savers: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tuple({"invoice": f"A-{number % 2}", "reference": f"words {number}"} for number in range(5))
    monkeypatch.setitem(CALLS, "pay", calls)
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=False)
    for _ in range(2):
        graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    assert service.done == ["words 0", "words 1"], "a turn after another is not asked about"
    history = list(graph.get_state_history(CONFIG))
    first = [each for each in history if each.next == ("model",)][-1]
    latest = history[0]
    question = asked_about(graph.invoke(None, first.config))
    assert "words 0" in question["reason"]
    graph.invoke(Command(resume={"effect": question["effect"], "outcome": "not_done"}), CONFIG)
    question = asked_about(graph.invoke({"messages": [HumanMessage("go")]}, CONFIG))
    assert "words 1" in question["reason"]
    graph.invoke(Command(resume={"effect": question["effect"], "outcome": "not_done"}), CONFIG)
    graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    assert service.done == ["words 0", "words 1", "words 2", "words 3", "words 4"], "each was asked about once"
    assert "__interrupt__" not in graph.invoke(None, latest.config)


def test_back_on_the_first_branch_the_calls_of_the_other_are_asked_about(
    savers: Savers, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tuple({"invoice": "A", "reference": f"words {number}"} for number in range(3))
    monkeypatch.setitem(CALLS, "pay", calls)
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=False)
    graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    history = list(graph.get_state_history(CONFIG))
    question = asked_about(graph.invoke(None, [each for each in history if each.next == ("model",)][-1].config))
    graph.invoke(Command(resume={"effect": question["effect"], "outcome": "not_done"}), CONFIG)
    question = asked_about(graph.invoke({"messages": [HumanMessage("go")]}, history[0].config))
    assert "words 1" in question["reason"]
    assert service.done == ["words 0", "words 1"]


def test_a_tool_call_that_was_edited_after_it_was_made_is_asked_about(savers: Savers) -> None:
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=False)
    graph.invoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
    [made] = [each for each in graph.get_state_history(CONFIG) if each.next == ("tools",)]
    edited = AIMessage("", tool_calls=[{"name": "pay", "args": CALLS["pay"][1], "id": "edited"}], id="message-0")
    question = asked_about(graph.invoke(None, graph.update_state(made.config, {"messages": [edited]})))
    assert service.done == ["rent"]
    assert all(each["reference"] in question["reason"] for each in CALLS["pay"])
    graph.invoke(Command(resume={"effect": question["effect"], "outcome": "not_done"}), CONFIG)
    assert service.done == ["rent", "the rent for May"]


@pytest.mark.parametrize("is_declared", [False, True])
def test_a_tool_call_that_was_edited_and_kept_its_ids_does_not_get_the_result_of_the_first(
    savers: Savers, is_declared: bool
) -> None:
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=is_declared)
    graph.invoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
    [made] = [each for each in graph.get_state_history(CONFIG) if each.next == ("tools",)]
    other = {"invoice": "B-18", "reference": "rent"}
    edited = AIMessage("", tool_calls=[{"name": "pay", "args": other, "id": "call-0"}], id="message-0")
    with pytest.raises(EffectMismatch, match="other arguments"):
        graph.invoke(None, graph.update_state(made.config, {"messages": [edited]}))
    assert service.done == ["rent"]


def test_a_tool_call_that_was_reworded_and_kept_its_ids_is_the_same_act(savers: Savers) -> None:
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=True)
    graph.invoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
    [made] = [each for each in graph.get_state_history(CONFIG) if each.next == ("tools",)]
    edited = AIMessage("", tool_calls=[{"name": "pay", "args": CALLS["pay"][1], "id": "call-0"}], id="message-0")
    state = graph.invoke(None, graph.update_state(made.config, {"messages": [edited]}))
    assert state["messages"][-1].content == "Done: paid for rent"
    assert service.done == ["rent"]


def test_a_read_that_was_edited_and_kept_its_ids_is_made_with_its_arguments(savers: Savers) -> None:
    service = Service()
    graph = graph_of(savers, service, "spend", is_declared=False, declare={"spend": {"effect": "read"}})
    graph.invoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
    [made] = [each for each in graph.get_state_history(CONFIG) if each.next == ("tools",)]
    edited = AIMessage("", tool_calls=[{"name": "spend", "args": CALLS["spend"][1], "id": "call-0"}], id="message-0")
    for _ in range(2):
        state = graph.invoke(None, graph.update_state(made.config, {"messages": [edited]}))
        assert state["messages"][-1].content == "Done: spent for the attacker"
    assert service.done == ["refund", "the attacker"]


def failed_graph(savers: Savers, service: Service) -> Any:
    """A graph that pays and writes a note in each turn. The first note fails, so the step of the payment does."""
    faults = [RuntimeError("the disk is full")]

    @tool
    def note(text: str) -> str:
        """Write a note."""
        if faults:
            raise faults.pop()
        return text

    saver = savers.open()
    tools = wrap_tools([*service.tools(is_declared=False), note], saver, declare={"note": {"effect": "read"}})

    def model(state: Chat) -> dict[str, Any]:
        last = state["messages"][-1]
        if last.type == "tool":
            return {"messages": [AIMessage("Done")]}
        paying = {"name": "pay", "args": CALLS["pay"][int(str(last.content))], "id": f"pay-{last.content}"}
        noting = {"name": "note", "args": {"text": "paid"}, "id": f"note-{last.content}"}
        return {"messages": [AIMessage("", tool_calls=[paying, noting], id=f"message-{last.content}")]}

    uncompiled: Any = StateGraph(Chat)
    uncompiled.add_node("model", model)
    uncompiled.add_node("tools", ToolNode(tools, handle_tool_errors=False))
    uncompiled.add_edge(START, "model")
    uncompiled.add_conditional_edges("model", tools_condition)
    uncompiled.add_edge("tools", "model")
    graph = uncompiled.compile(checkpointer=saver)
    with pytest.raises(RuntimeError, match="full"):
        graph.invoke({"messages": [HumanMessage("0")]}, CONFIG)
    return graph


def test_a_call_of_a_step_that_failed_is_asked_about_in_a_new_turn(savers: Savers) -> None:
    service = Service()
    graph = failed_graph(savers, service)
    question = asked_about(graph.invoke({"messages": [HumanMessage("1")]}, CONFIG))
    assert service.done == ["rent"]
    assert all(each["reference"] in question["reason"] for each in CALLS["pay"])
    graph.invoke(Command(resume={"effect": question["effect"], "outcome": "not_done"}), CONFIG)
    assert service.done == ["rent", "the rent for May"]


def test_a_call_of_a_step_that_was_resumed_is_not_asked_about(savers: Savers) -> None:
    service = Service()
    graph = failed_graph(savers, service)
    graph.invoke(None, CONFIG)
    assert "__interrupt__" not in graph.invoke({"messages": [HumanMessage("1")]}, CONFIG)
    assert service.done == ["rent", "the rent for May"]


def test_an_async_graph_asks_too(savers: Savers) -> None:
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=False)

    async def run() -> None:
        await graph.ainvoke({"messages": [HumanMessage("go", id="input")]}, CONFIG)
        before = [each async for each in graph.aget_state_history(CONFIG) if each.next == ("model",)][-1]
        question = asked_about(await graph.ainvoke(None, before.config))
        assert service.done == ["rent"]
        assert "the rent for May" in question["reason"]
        await graph.ainvoke(Command(resume={"effect": question["effect"], "outcome": "not_done"}), CONFIG)

    asyncio.run(run())
    assert service.done == ["rent", "the rent for May"]


def test_a_thread_whose_old_checkpoints_were_deleted_is_not_asked_about(
    savers: Savers, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tuple({"invoice": "A", "reference": f"words {number}"} for number in range(3))
    monkeypatch.setitem(CALLS, "pay", calls)
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=False)
    for _ in range(3):
        assert "__interrupt__" not in graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        savers.open().hf.thread("t").prune(holdfast.Retention(keep_last=1))
    assert len(service.done) == 3


def prune(graph: Any) -> Any:
    graph.checkpointer.prune(["t"])
    return CONFIG


def rewind(graph: Any) -> Any:
    latest = graph.get_state(CONFIG).config["configurable"]["checkpoint_id"]
    graph.update_state(CONFIG, {"messages": [HumanMessage("a note")]})
    graph.checkpointer.rewind("t", latest)
    return CONFIG


def fork(graph: Any) -> Any:
    graph.checkpointer.fork("t", "fork")
    return {"configurable": {"thread_id": "fork"}}


class WithNotes(Chat):
    notes: Annotated[list[str], DeltaChannel(lambda notes, writes: [*notes, *chain(*writes)], snapshot_frequency=100)]


@pytest.mark.parametrize("schema", [Chat, WithNotes])
@pytest.mark.parametrize("change", [prune, rewind, fork])
def test_a_call_of_an_earlier_turn_is_made_again_although_its_checkpoints_are_gone(
    savers: Savers, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], schema: type[Chat]
) -> None:
    monkeypatch.setitem(CALLS, "pay", (CALLS["pay"][0],) * 3)
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=False, schema=schema)
    graph.invoke({"messages": [HumanMessage("go")], "notes": ["first"]}, CONFIG)
    config = change(graph)

    for count in (2, 3):
        graph.invoke({"messages": [HumanMessage("pay it again")], "notes": ["again"]}, config)
        assert service.done == ["rent"] * count


@pytest.mark.parametrize("schema", [Chat, WithNotes])
def test_a_call_that_a_rewind_abandoned_is_not_made_again(
    savers: Savers, monkeypatch: pytest.MonkeyPatch, schema: type[Chat]
) -> None:
    monkeypatch.setitem(CALLS, "pay", (CALLS["pay"][0],) * 3)
    service = Service()
    graph = graph_of(savers, service, "pay", is_declared=False, schema=schema)
    for _ in range(2):
        graph.invoke({"messages": [HumanMessage("go")], "notes": ["a note"]}, CONFIG)
    between = next(
        each for each in graph.get_state_history(CONFIG) if not each.next and len(each.values["messages"]) == 4
    )
    graph.checkpointer.rewind("t", between.config["configurable"]["checkpoint_id"])

    graph.invoke({"messages": [HumanMessage("go")], "notes": ["a note"]}, CONFIG)

    assert service.done == ["rent"] * 2


def test_calls_in_a_subgraph_are_not_asked_about_until_the_graph_goes_back(savers: Savers) -> None:
    service = Service()
    inner = graph_of(savers, service, "pay", is_declared=False, is_compiled=False).compile()
    outer: Any = StateGraph(Chat)

    def agent(state: Chat) -> dict[str, Any]:
        # Only the last message leaves the subgraph: the state of the outer graph does not show the call.
        return {"messages": inner.invoke({"messages": state["messages"][:1]})["messages"][-1:]}

    outer.add_node("agent", agent)
    outer.add_edge(START, "agent")
    graph = outer.compile(checkpointer=savers.open())
    for _ in range(2):
        assert "__interrupt__" not in graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    assert service.done == ["rent", "the rent for May"]
