"""Agents to drill: a loop that follows a script, and tools that keep books in the current folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast import AsyncRun, Run

START: dict[str, Any] = {"messages": []}
Turn = list[tuple[str, dict[str, Any]]]


def note(book: str, line: str) -> None:
    with Path(book).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def lines(book: str) -> list[str]:
    return Path(book).read_text("utf-8").splitlines() if Path(book).exists() else []


def scripted(*turns: Turn) -> Callable[..., dict[str, Any]]:
    """A model that makes these calls, turn by turn, and then is done."""

    def model(*, messages: list[dict[str, Any]]) -> dict[str, Any]:
        turn = sum(message["role"] == "assistant" for message in messages)
        wanted = turns[turn] if turn < len(turns) else []
        calls = [{"id": f"call_{number}", "name": name, "args": args} for number, (name, args) in enumerate(wanted)]
        return {"role": "assistant", "calls": calls}

    return model


def agent(*turns: Turn, model: Callable[..., Any] | None = None) -> Callable[[Run], Any]:
    """The loop of the documents."""
    ask = model or scripted(*turns)

    def work(run: Run) -> None:
        for _ in run.steps():
            reply = run.model(ask, messages=run.state["messages"])
            run.state["messages"].append(reply)
            if not reply["calls"]:
                run.finish("done")
                break
            for call in reply["calls"]:
                result = run.tool(call["name"], call["args"], key=call["id"])
                run.state["messages"].append({"role": "tool", "content": result})

    return work


def one_call(name: str, args: dict[str, Any]) -> Callable[[Run], Any]:
    """An agent without a model."""

    def work(run: Run) -> Any:
        return run.tool(name, args)

    return work


def async_agent(name: str, args: dict[str, Any]) -> Callable[[AsyncRun], Any]:
    """An async agent that asks an async model and makes one call."""

    async def ask() -> str:
        return name

    async def work(run: AsyncRun) -> Any:
        return await run.tool(await run.model(ask), args)

    return work


def ask(prompt: str) -> str:
    return "thanks"


def punctual(run: Run) -> Any:
    """An agent that tells its model the time."""
    return run.tool("post", {"letter": run.model(ask, f"It is {time.time_ns()}. What now?")})


@holdfast.tool(effect="read")
def look_up(item: str) -> dict[str, Any]:
    return {"price of": item}


@holdfast.tool(effect="idempotent")
def reserve(item: str, idempotency_key: str) -> dict[str, Any]:
    if idempotency_key not in lines("keys"):
        note("keys", idempotency_key)
        note("ledger", f"reserve {item}")
    return {"reserved": item}


def was_paid(to: str) -> holdfast.Happened | holdfast.NotDone:
    return holdfast.Happened({"paid": to}) if f"pay {to}" in lines("ledger") else holdfast.NotDone()


@holdfast.tool(probe=was_paid)
def pay(to: str) -> dict[str, Any]:
    note("ledger", f"pay {to}")
    return {"paid": to}


@holdfast.tool(in_doubt="ask")
def post(letter: str) -> dict[str, Any]:
    note("ledger", f"post {letter}")
    return {"posted": letter}


@holdfast.tool(in_doubt="give_up")
def notify(whom: str) -> dict[str, Any]:
    note("ledger", f"notify {whom}")
    return {"notified": whom}


TOOLS: list[Callable[..., Any]] = [look_up, reserve, pay, post, notify]
EVERY_CLASS: tuple[Turn, ...] = (
    [("look_up", {"item": "paper"}), ("reserve", {"item": "paper"})],
    [("pay", {"to": "mill"}), ("post", {"letter": "thanks"})],
)
