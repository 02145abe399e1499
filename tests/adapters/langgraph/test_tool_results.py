"""What tools with a journal give, raise and are declared as; what is refused; and the journal itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command, interrupt

import holdfast
from holdfast import InvalidArgument, ToolNotDone, Unsupported
from holdfast.adapters.langgraph import tools_thread, wrap_tools
from holdfast.adapters.langgraph.checkpoint_format import thread_id_of
from holdfast.adapters.langgraph.middleware import HoldfastTools
from tests.adapters.langgraph.acting import CONFIG, INPUT, Way, World, build, go, once, said
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.graphs import Scripted, call


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world.txt")


def one(local: Savers, given: BaseTool, **args: Any) -> Any:
    """A graph with one tool call, and its saver."""
    lines = [AIMessage("", tool_calls=[call(given.name, 1, **args)]), AIMessage("Done.")]
    saver = local.open()
    return saver, build(saver, [given], "graph", lines)


def test_a_tool_that_did_nothing_is_called_again(local: Savers, world: World) -> None:
    @tool
    def careful(text: str) -> str:
        """Do nothing the first time."""
        world.do("careful", text)
        if len(world.done) == 1:
            raise ToolNotDone("the door was closed")
        return "done"

    saver, graph = one(local, careful, text="a")
    with pytest.raises(ToolNotDone, match="door"):
        go(graph, INPUT, is_async=False)
    assert said(go(graph, None, is_async=False)) == ["done"]
    assert [effect.status for effect in saver.hf.effects(tools_thread("t"))] == ["not_done", "done"]


def test_an_error_that_is_told_to_the_model_leaves_no_doubt(local: Savers) -> None:
    @tool
    @holdfast.tool(not_done=(ToolException,))
    def refusing(text: str) -> str:
        """Refuse."""
        raise ToolException("no such account")

    refusing.handle_tool_error = True
    saver, graph = one(local, refusing, text="a")
    assert said(go(graph, INPUT, is_async=False)) == ["no such account"]
    assert not list(saver.hf.waiting())


def test_arguments_that_the_tool_refuses_are_no_call(local: Savers, world: World) -> None:
    saver, graph = one(local, once(world), text=[1])
    [message] = said(go(graph, INPUT, is_async=False))
    assert "Input should be a valid string" in message
    assert not list(saver.hf.threads(prefix=tools_thread("t")))


def test_a_tool_may_interrupt_the_graph(local: Savers, world: World) -> None:
    @tool
    def approved(amount: int) -> str:
        """Act if somebody agrees."""
        agreed = interrupt({"pay": amount})
        world.do("approved", amount, agreed)
        return "paid"

    saver, graph = one(local, approved, amount=3)
    [question] = go(graph, INPUT, is_async=False)["__interrupt__"]
    assert question.value == {"pay": 3}
    assert not list(saver.hf.waiting())
    assert said(go(graph, Command(resume="yes"), is_async=False)) == ["paid"]
    assert world.done == ["approved 3 yes"]


CallId = Annotated[str, InjectedToolCallId]


def giving_a_message(world: World) -> BaseTool:
    @tool
    def gives(text: str, call_id: CallId) -> ToolMessage:
        """Give a message."""
        world.do("gives", text)
        return ToolMessage(f"message {text}", tool_call_id=call_id, artifact={"rows": [1, 2]}, id="given")

    return gives


def giving_a_command(world: World) -> BaseTool:
    @tool
    def gives(text: str, call_id: CallId) -> Command[Any]:
        """Give a command."""
        world.do("gives", text)
        return Command(update={"messages": [ToolMessage(f"message {text}", tool_call_id=call_id, id="given")]})

    return gives


def giving_an_artifact(world: World) -> BaseTool:
    @tool(response_format="content_and_artifact")
    def gives(text: str) -> tuple[str, dict[str, Any]]:
        """Give content and an artifact."""
        world.do("gives", text)
        return f"message {text}", {"rows": [1, 2]}

    return gives


def giving_blocks(world: World) -> BaseTool:
    @tool
    def gives(text: str) -> list[dict[str, Any]]:
        """Give blocks of content."""
        world.do("gives", text)
        return [{"type": "text", "text": f"message {text}"}]

    return gives


def giving_an_object(world: World) -> BaseTool:
    @tool
    def gives(text: str) -> Any:
        """Give something that LangChain makes a text of."""
        world.do("gives", text)
        return {f"message {text}"}

    return gives


def using_the_state(world: World) -> BaseTool:
    @tool
    def gives(text: str, state: Annotated[Any, InjectedState], runtime: ToolRuntime[Any, Any]) -> str:
        """Look at the state."""
        world.do("gives", text)
        return f"message {text} {len(state['messages'])} {runtime.tool_call_id}"

    return gives


@pytest.mark.parametrize(
    "make",
    [giving_a_message, giving_a_command, giving_an_artifact, giving_blocks, giving_an_object, using_the_state],
)
@pytest.mark.parametrize("way", ["agent", "graph"])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_tool_gives_is_the_same_with_the_journal_and_from_it(
    local: Savers, world: World, make: Callable[[World], BaseTool], way: Way, is_async: bool
) -> None:
    given = make(world)
    lines = [AIMessage("", tool_calls=[call("gives", 1, text="a")]), AIMessage("Done.")]
    saver = local.open()
    graph = build(saver, [given], way, lines)
    first = answered(go(graph, INPUT, is_async=is_async))
    before = next(state for state in graph.get_state_history(CONFIG) if state.next == ("tools",))
    again = asyncio.run(graph.ainvoke(None, before.config)) if is_async else graph.invoke(None, before.config)
    assert answered(again) == first
    assert world.done == ["gives a"]
    assert saver.hf.effects(tools_thread("t"))[0].arguments == {"text": "a"}
    if make not in (using_the_state, giving_a_command):
        plain = given.invoke({"type": "tool_call", "id": "call-1-0", "name": "gives", "args": {"text": "a"}})
        assert (plain.content, plain.artifact, plain.status) == first[:3]


def answered(state: Any) -> tuple[Any, ...]:
    [message] = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    return message.content, message.artifact, message.status, message.name, message.tool_call_id


def test_what_cannot_be_recorded_is_said_and_not_called_again(local: Savers, world: World) -> None:
    class Odd:
        pass

    @tool(response_format="content_and_artifact")
    def odd(text: str) -> tuple[str, Any]:
        """Give what nobody can store."""
        world.do("odd", text)
        return text, Odd()

    saver, graph = one(local, odd, text="a")
    with pytest.raises(Unsupported, match="odd was called, and its result cannot be recorded"):
        go(graph, INPUT, is_async=False)
    with pytest.raises(holdfast.HoldfastError, match="settle"):
        go(graph, None, is_async=False)
    [effect] = saver.hf.effects(tools_thread("t"))
    saver.hf.settle(tools_thread("t"), effect, holdfast.Happened("it was odd"))
    assert said(go(graph, None, is_async=False)) == ["it was odd"]
    assert world.done == ["odd a"]


# -- declaring --------------------------------------------------------------------------------------------------------


def test_tools_of_others_are_declared_by_their_names(local: Savers, world: World) -> None:
    class Foreign(BaseTool):
        name: str = "foreign"
        description: str = "A tool that is a class."

        def _run(self, text: str) -> str:
            world.do("foreign", text)
            if len(world.done) == 1:
                raise ConnectionError("away")
            return text

    saver = local.open()
    lines = [AIMessage("", tool_calls=[call("foreign", 1, text="a")]), AIMessage("Done.")]
    graph = build(saver, wrap_tools([Foreign()], saver, declare={"foreign": {"effect": "idempotent"}}), "graph", lines)
    with pytest.raises(ConnectionError):
        go(graph, INPUT, is_async=False)
    assert said(go(graph, None, is_async=False)) == ["a"]
    assert [effect.effect for effect in saver.hf.effects(tools_thread("t"))] == ["idempotent", "idempotent"]


def test_an_async_tool_is_journaled(local: Savers, world: World) -> None:
    async def slowly(text: str) -> str:
        """Do it slowly."""
        await asyncio.sleep(0)
        world.do("slowly", text)
        return text

    given = StructuredTool.from_function(coroutine=slowly)
    _, graph = one(local, given, text="a")
    assert said(go(graph, INPUT, is_async=True)) == ["a"]
    before = next(state for state in graph.get_state_history(CONFIG) if state.next == ("tools",))
    asyncio.run(graph.ainvoke(None, before.config))
    assert world.done == ["slowly a"]


def test_wrapping_twice_changes_nothing(local: Savers, world: World) -> None:
    saver = local.open()
    wrapped = wrap_tools([once(world)], saver)
    assert wrap_tools(wrapped, saver)[0] is wrapped[0]
    lines = [AIMessage("", tool_calls=[call("once", 1, text="a")]), AIMessage("Done.")]
    assert said(go(build(saver, wrapped, "agent", lines), INPUT, is_async=False)) == ["did a"]
    assert len(saver.hf.effects(tools_thread("t"))) == 1


def test_the_tools_given_stay_as_they_are(local: Savers, world: World) -> None:
    given = once(world)
    wrap_tools([given], local.open())
    assert given.invoke({"text": "a"}) == "did a"


def test_functions_are_tools(local: Savers) -> None:
    def plain(text: str) -> str:
        """A function."""
        return text

    [wrapped] = wrap_tools([plain], local.open())
    assert wrapped.name == "plain"


# -- refused ----------------------------------------------------------------------------------------------------------


def test_a_call_without_an_id_is_refused(local: Savers, world: World) -> None:
    [wrapped] = wrap_tools([once(world)], local.open())
    with pytest.raises(InvalidArgument, match="without a tool call id"):
        wrapped.invoke({"text": "a"}, {"configurable": {"thread_id": "t"}})
    assert world.done == []


def test_a_call_without_a_thread_is_refused(local: Savers, world: World) -> None:
    [wrapped] = wrap_tools([once(world)], local.open())
    with pytest.raises(InvalidArgument, match="has no thread_id"):
        wrapped.invoke({"type": "tool_call", "id": "1", "name": "once", "args": {"text": "a"}})
    assert world.done == []


def test_tools_that_act_are_refused_where_nothing_is_stored_before_the_end(local: Savers, world: World) -> None:
    _, graph = one(local, once(world), text="a")
    with pytest.raises(InvalidArgument, match='durability="exit"'):
        go(graph, INPUT, is_async=False, durability="exit")
    assert world.done == []


def test_what_keeps_the_journal_is_a_saver_or_a_handle(local: Savers) -> None:
    with pytest.raises(InvalidArgument, match="HoldfastSaver"):
        wrap_tools([], "agent.db")  # type: ignore[arg-type]  # a user's mistake
    with pytest.raises(InvalidArgument, match="HoldfastSaver"):
        HoldfastTools("agent.db")  # type: ignore[arg-type]  # a user's mistake


# -- the journal ------------------------------------------------------------------------------------------------------


def test_the_journal_of_a_handle_serves_any_checkpointer(local: Savers, world: World) -> None:
    hf = local.handle()
    lines = [AIMessage("", tool_calls=[call("once", 1, text="a")]), AIMessage("Done.")]
    middleware = [HoldfastTools(hf)]
    graph: Any = create_agent(Scripted(lines=lines), [once(world)], middleware=middleware, checkpointer=InMemorySaver())
    go(graph, INPUT, is_async=False)
    before = next(state for state in graph.get_state_history(CONFIG) if state.next == ("tools",))
    assert said(graph.invoke(None, before.config)) == ["did a"]
    assert world.done == ["once a"]
    assert [effect.result for effect in hf.effects(tools_thread("t"))] == ["did a"]


def test_deleting_a_thread_deletes_its_journal(local: Savers, world: World) -> None:
    saver, graph = one(local, once(world), text="a")
    go(graph, INPUT, is_async=False)
    assert list(saver.hf.threads())
    saver.delete_thread("t")
    assert not list(saver.hf.threads())


def test_the_journal_collides_with_no_thread(local: Savers, world: World) -> None:
    saver = local.open()
    lines = [AIMessage("", tool_calls=[call("once", 1, text="a")]), AIMessage("Done.")]
    graph = build(saver, [once(world)], "agent", lines)
    for thread_id in ("t", "t%tools", "t#x", "t/tools"):
        config = {"configurable": {"thread_id": thread_id}}
        assert said(graph.invoke(INPUT, config)) == ["did a"]
    assert len(world.done) == 4
    listed = {thread_id_of(found.config) for found in saver.list(None)}
    assert listed == {"t", "t%tools", "t#x", "t/tools"}
    assert saver.hf.verify(deep=True).ok
