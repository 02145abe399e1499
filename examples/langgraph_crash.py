"""A LangGraph agent is killed after it booked a flight. The next process resumes it, and books nothing twice.

    pip install langchain langgraph
    python examples/langgraph_crash.py [--plain]

What happens is written to world.txt, in a new folder. With --plain the tool has no journal, and is called again.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.middleware import HoldfastTools

WORLD = Path("world.txt")
TRIP: Any = {"configurable": {"thread_id": "trip"}}
CALL = {"name": "book_flight", "args": {"flight": "HF 7"}, "id": "call_0", "type": "tool_call"}


def act(name: str, what: str) -> str:
    with WORLD.open("a", encoding="utf-8") as world:
        world.write(f"{name} {what}\n")
    if "DIE" in os.environ and name == "booked":
        os.kill(os.getpid(), signal.SIGKILL)  # it happened, and its result is not recorded
    return "done"


def was_booked(flight: str) -> Any:  # the probe: ask the airline
    return holdfast.Happened("done") if f"booked {flight}" in WORLD.read_text("utf-8") else holdfast.NotDone()


@tool
@holdfast.tool(effect="irreversible", probe=was_booked)
def book_flight(flight: str) -> str:
    """Book a flight."""
    return act("booked", flight)


class Scripted(BaseChatModel):  # in place of a model: it books a flight, then it is done
    _llm_type = "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> "Scripted":
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        act("model asked", str(turn := sum(isinstance(message, AIMessage) for message in messages)))
        calls: Any = [] if turn else [CALL]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("You fly on Friday.", tool_calls=calls))])


def work(is_plain: bool) -> None:
    with HoldfastSaver("trip.db") as saver:
        journal = [] if is_plain else [HoldfastTools(saver)]
        agent: Any = create_agent(Scripted(), [book_flight], middleware=journal, checkpointer=saver)
        task = None if agent.get_state(TRIP).created_at else {"messages": [("user", "Get me to Oslo.")]}
        print(agent.invoke(task, TRIP)["messages"][-1].content)


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())
    for environment in ({"DIE": "1"}, {}):
        os.environ.update(environment)
        process = multiprocessing.get_context("fork").Process(target=work, args=("--plain" in sys.argv,))
        process.start()
        process.join()
        os.environ.pop("DIE", None)
        print("killed after the booking" if process.exitcode else WORLD.read_text("utf-8"))
