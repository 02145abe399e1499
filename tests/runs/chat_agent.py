"""A conversation of two turns, each with a stream, a child, a question, a sleep and an order: what a process runs.

Its books are in files that Holdfast knows nothing of, and judge what happened.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast import AsyncRun, Happened, Holdfast, NotDone, Run
from holdfast.urls import open_store
from tests.runs.sweep_faults import Countdown, counted

THREAD = "chat"
TURNS = ("r1", "r2")
ROUNDS = 40  # more than any job needs
LOG = [line for turn in TURNS for line in (turn, f"a b {turn}", f"helped {turn}", "yes", f"ordered {turn}")]


class Job(msgspec.Struct):
    """What a child is told."""

    folder: str
    is_async: bool
    at: int = 0


class Ended(msgspec.Struct):
    """What a child saw at the end."""

    log: list[str]
    results: list[str]
    helped: list[str]


class Books:
    """What is outside of the store."""

    def __init__(self, folder: Path, tick: Callable[[str], None]) -> None:
        self._folder = folder
        self._tick = tick
        self.order = holdfast.tool(effect="irreversible", name="order")(self._order)
        self.pack = holdfast.tool(effect="irreversible", name="pack", probe=self._probe)(self._pack)

    def note(self, book: str, line: str) -> None:
        self._tick(f"before {book} {line}")
        file = os.open(self._folder / book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)
        self._tick(f"after {book} {line}")

    def lines(self, book: str) -> list[str]:
        path = self._folder / book
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def stream(self, turn: str) -> Iterator[str]:
        self.note("requests", f"stream {turn}")
        yield from ("a ", "b ", turn)

    def help(self, turn: str) -> str:
        self.note("requests", f"help {turn}")
        return f"helped {turn}"

    def _order(self, what: str) -> str:
        self.note("ledger", f"order {what}")
        return f"ordered {what}"

    def _pack(self, what: str) -> str:
        self.note("ledger", f"pack {what}")
        return f"packed {what}"

    def _probe(self, what: str) -> Happened | NotDone:
        return self.outcome("pack", what)

    def outcome(self, tool: str, what: str) -> Happened | NotDone:
        word = {"order": "ordered", "pack": "packed"}[tool]
        return Happened(f"{word} {what}") if f"{tool} {what}" in self.lines("ledger") else NotDone()


def turn_of(run: Run, books: Books, turn: str) -> None:
    if run.fresh:
        run.state["log"].append(turn)
        run.save()
    text = "".join(run.stream(books.stream, turn))
    with run.child("helper", start={"helped": []}) as child:
        if child.status != "completed":
            child.state["helped"].append(child.model(books.help, turn))
            child.tool("pack", {"what": turn})
            child.finish(child.state["helped"][-1])
    answer = run.wait("approve", turn)
    run.sleep(0)
    ordered = run.tool("order", {"what": turn})
    run.state["log"] += [text, child.result, answer, ordered]
    run.finish(f"done {turn}")


async def async_turn_of(run: AsyncRun, books: Books, turn: str) -> None:
    if run.fresh:
        run.state["log"].append(turn)
        await run.save()
    text = "".join([chunk async for chunk in run.stream(books.stream, turn)])
    async with run.child("helper", start={"helped": []}) as child:
        if child.status != "completed":
            child.state["helped"].append(await child.model(books.help, turn))
            await child.tool("pack", {"what": turn})
            await child.finish(child.state["helped"][-1])
    answer = await run.wait("approve", turn)
    await run.sleep(0)
    ordered = await run.tool("order", {"what": turn})
    run.state["log"] += [text, child.result, answer, ordered]
    await run.finish(f"done {turn}")


async def _async_once(hf: Holdfast, books: Books, turn: str) -> str:
    async with hf.aio.run(THREAD, start={"log": []}, turn=turn) as run:
        if run.status != "completed":
            await async_turn_of(run, books, turn)
    return run.status


def _once(hf: Holdfast, books: Books, turn: str) -> str:
    with hf.run(THREAD, start={"log": []}, turn=turn) as run:
        if run.status != "completed":
            turn_of(run, books, turn)
    return run.status


def to_the_end(hf: Holdfast, books: Books, *, is_async: bool) -> None:
    """Run both turns, answering what is asked: truthfully where a call is in doubt."""
    for turn in TURNS:
        for _ in range(ROUNDS):
            status = asyncio.run(_async_once(hf, books, turn)) if is_async else _once(hf, books, turn)
            if status == "completed":
                break
            for question in hf.waiting():
                if question.about == "wait":
                    hf.answer(question.thread, question.name, "yes")
                else:
                    hf.settle(question.thread, question.effect, books.outcome(question.name, **question.payload))
        else:
            raise AssertionError("the conversation does not end")


def work(path: Path, pipe: int) -> None:
    """Do the job, and die at the place that it names; at none, report."""
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    countdown = Countdown(job.at, pipe)
    books = Books(Path(job.folder), countdown.tick)
    store = open_store(Path(job.folder) / "agent.db", namespace="default", durability="off")
    hf = Holdfast(counted(store, countdown), tools=[books.order, books.pack])
    to_the_end(hf, books, is_async=job.is_async)
    report = hf.verify()
    assert report.ok, report.problems
    results: list[Any] = []
    for turn in TURNS:
        with hf.run(THREAD, turn=turn) as run:
            results.append(run.result)
    chat, helper = hf.thread(THREAD).latest(), hf.thread(f"{THREAD}/helper").latest()
    assert chat is not None
    assert helper is not None
    hf.close()
    os.write(pipe, msgspec.json.encode(Ended(chat.state["log"], results, helper.state["helped"])) + b"\n")
