"""A LangGraph agent is killed in its tools, three times. The next process resumes it, and nothing is done twice.

    python examples/langgraph_crash.py [--plain]

The agent is made by LangChain's `create_agent`, with a scripted model. Its checkpoints are in a SQLite file, and its
tools have a journal (`HoldfastTools`). Each process except the last is killed with SIGKILL inside a tool. The outcome
is judged by a file that represents the world, to which each tool writes its effects, never by the journal. With --plain
the tools have no journal, and LangGraph calls the interrupted tool again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, InjectedToolArg, tool
from langgraph.types import Command

import holdfast
from holdfast import Happened, NotDone
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.middleware import HoldfastTools
from holdfast.adapters.langgraph.tools import tools_thread

TRIP: Any = {"configurable": {"thread_id": "trip"}}
TASK = {"messages": [{"role": "user", "content": "Get me to Oslo on Friday, with a room, and write to my host."}]}
SCRIPT = [
    ("Let me see what flies.", "find_flight", {"city": "Oslo"}),
    ("I take the early one.", "book_flight", {"flight": "HF 7"}),
    ("Now a room.", "reserve_room", {"hotel": "Fjord"}),
    ("And a letter.", "send_letter", {"to": "the host"}),
]
DEATHS = ["book_flight", "reserve_room", "send_letter"]  # the tools in which processes are killed
# The tool gets the key from the journal, not from the model.
Key = Annotated[str, InjectedToolArg]


class World:
    """A file to which the model and all tools write their calls."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, *what: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(",".join(what) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def seen(self) -> list[list[str]]:
        return [line.split(",") for line in self._path.read_text("utf-8").splitlines()] if self._path.exists() else []


class Scripted(BaseChatModel):
    """A paid model: each call is written to the file."""

    world: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Scripted:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        self.world.note("model", str(turn))
        if turn < len(SCRIPT):
            text, name, given = SCRIPT[turn]
            # Call ids start again with each message, as with some models.
            reply = AIMessage(text, tool_calls=[{"name": name, "args": given, "id": "call_0", "type": "tool_call"}])
        else:
            reply = AIMessage("You fly on Friday.")
        return ChatResult(generations=[ChatGeneration(message=reply)])


def tools_in(world: World, die_in: str | None) -> list[BaseTool]:
    def die(name: str) -> None:
        if name == die_in:
            os.kill(os.getpid(), signal.SIGKILL)

    def was_booked(flight: str, idempotency_key: str) -> Happened | NotDone:
        """Ask the airline whether it has a booking with this key."""
        is_booked = ["book_flight", flight, idempotency_key] in world.seen()
        return Happened(f"{flight} is booked") if is_booked else NotDone()

    @tool
    @holdfast.tool(effect="read")
    def find_flight(city: str) -> str:
        """Find a flight to a city."""
        world.note("find_flight", city)
        return "HF 7 at seven, HF 9 at nine"

    @tool
    @holdfast.tool(effect="irreversible", probe=was_booked, probe_after=1.0)
    def book_flight(flight: str, idempotency_key: Key = "") -> str:
        """Book a flight."""
        world.note("book_flight", flight, idempotency_key)
        die("book_flight")
        return f"{flight} is booked"

    @tool
    @holdfast.tool(effect="idempotent")
    def reserve_room(hotel: str, idempotency_key: Key = "") -> str:
        """Reserve a room. The hotel makes one reservation per key."""
        world.note("reserve_room", hotel, idempotency_key)
        die("reserve_room")
        return f"a room at the {hotel}"

    @tool
    @holdfast.tool(effect="irreversible")
    def send_letter(to: str) -> str:
        """Send a letter. Only a person can find out whether it was sent."""
        world.note("send_letter", to)
        die("send_letter")
        return "sent"

    return [find_flight, book_flight, reserve_room, send_letter]


def work(folder: Path, die_in: str | None, is_plain: bool) -> None:
    """One process of the agent: start, or resume where the last process was killed."""
    world = World(folder / "world.csv")
    with HoldfastSaver(folder / "trip.db") as saver:
        middleware = [] if is_plain else [HoldfastTools(saver)]
        model = Scripted(world=world)
        agent: Any = create_agent(model, tools_in(world, die_in), middleware=middleware, checkpointer=saver)
        is_begun = agent.get_state(TRIP).created_at is not None
        state = agent.invoke(None if is_begun else TASK, TRIP)
        for question in state.get("__interrupt__", ()):
            asked = question.value
            print(f"  a person is asked: {asked['tool']} {asked['arguments']}: did it happen?")
            print("  the person checks the mailbox and answers: it happened")
            answer = {"effect": asked["effect"], "outcome": "happened", "result": "sent, a person checked"}
            state = agent.invoke(Command(resume=answer), TRIP)
        print(f"  the agent says: {state['messages'][-1].content}")


def in_a_process(what: Callable[..., None], *args: Any) -> int:
    """Call a function in a new process; returns the exit code."""
    # Forked, because importing LangChain takes long.
    process = multiprocessing.get_context("fork").Process(target=what, args=args)
    sys.stdout.flush()
    process.start()
    process.join()
    return process.exitcode or 0


def main(is_plain: bool) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, die_in in enumerate([*DEATHS, None], 1):
            print(f"process {number}")
            code = in_a_process(work, folder, die_in, is_plain)
            if code != (-signal.SIGKILL if die_in else 0):
                return 1
            if die_in:
                print(f"  killed in {die_in}, after it acted and before its result was recorded")
        return report(folder, is_plain)


def report(folder: Path, is_plain: bool) -> int:
    seen = World(folder / "world.csv").seen()
    called = Counter(line[0] for line in seen)
    keys = {line[2] for line in seen if line[0] == "reserve_room"}
    told = {
        "find_flight": "its result was recorded",
        "book_flight": "the airline confirmed the booking",
        "reserve_room": f"with {len(keys)} key, so the hotel has one reservation",
        "send_letter": "a person was asked",
    }
    print(f"\nin the world\n  {called['model']} model calls, for {len(SCRIPT) + 1} turns")
    for name, why in told.items():
        print(f"  {name} called {called[name]}x" + ("" if is_plain else f": {why}"))
    if is_plain:
        return 0
    print("\nin the journal")
    with holdfast.open(folder / "trip.db") as hf:
        for effect in hf.effects(tools_thread("trip")):
            print(f"  {effect.name} {effect.arguments or ''}: {effect.status}")
        is_sound = hf.verify(deep=True).ok
    expected = {"model": len(SCRIPT) + 1, "find_flight": 1, "book_flight": 1, "reserve_room": 2, "send_letter": 1}
    return 0 if called == expected and len(keys) == 1 and is_sound else 1


if __name__ == "__main__":
    sys.exit(main("--plain" in sys.argv[1:]))
