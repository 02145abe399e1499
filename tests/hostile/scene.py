"""A store with everything in it that a record can be about, and a tour of every verb that reads or writes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import holdfast
from holdfast import Holdfast, Retention
from holdfast.errors import HoldfastError

NAMES = ("main", "fork", "job", "asking")
_NOISE = random.Random(1).randbytes(20_000).hex()


@holdfast.tool(effect="idempotent")
def act(word: str) -> str:
    return word.upper()


@holdfast.tool(effect="irreversible")
def pay(word: str) -> str:
    return word


def build(hf: Holdfast) -> None:
    """Threads with lists, nodes and large values; a fork, a rewind; runs that ended, failed and wait."""
    main = hf.thread("main")
    messages: list[Any] = []
    for step in range(6):
        messages += [{"role": "user", "content": f"message {step} {number} " + "x" * 60} for number in range(20)]
        main.save(
            {"messages": messages, "plan": {"steps": [{"n": n, "text": "y" * 200} for n in range(20)]}, "blob": _NOISE},
            label=f"label {step}",
            tags=["tag"],
            metadata={"user": "somebody"},
            usage={"input": 3},
        )
    main.fork("fork").save({"messages": messages[:7], "other": [*range(2000)]})
    main.rewind("@-3")
    main.save({"messages": messages[:30], "table": {str(n): n for n in range(200)}})
    with hf.run("job", start={"n": 0}) as run:
        for _ in run.steps():
            run.state["n"] += 1
            run.tool(act, {"word": "a"})
            run.model(lambda: {"reply": "b"})
            run.tool(pay, {"word": "c"})
            if run.state["n"] == 3:
                run.finish({"total": 3})
    with hf.run("asking", start={"n": 0}) as run:
        run.tool(act, {"word": "a"})
        run.wait("approve", {"amount": 1}, timeout=1000.0)


def tour(hf: Holdfast) -> None:
    """Every verb. Each may refuse with an error of Holdfast's own, and with nothing else."""
    for verb, names in ((look, NAMES), (change, NAMES), (end, NAMES[:1])):
        for name in names:
            for call in verb(hf, name):
                try:
                    call()
                except HoldfastError as error:
                    str(error)


def look(hf: Holdfast, name: str) -> Iterator[Callable[[], Any]]:
    thread = hf.thread(name)
    yield lambda: list(hf.threads())
    yield thread.latest
    yield lambda: thread.latest(fallback=True)
    yield thread.head
    yield lambda: (thread.step, thread.count)
    yield lambda: list(thread.history())
    yield lambda: thread.load("1")
    yield lambda: thread.load("@-2", partial=True)
    yield lambda: thread.find(label="label 2")
    yield lambda: thread.find(tag="tag")
    yield lambda: thread.diff("@-2", "@-1")
    yield lambda: thread.prune(Retention(keep_last=2), dry_run=True)
    yield lambda: hf.effects(name)
    yield lambda: hf.progress(name)
    if name == NAMES[-1]:
        yield lambda: list(hf.interrupted())
        yield lambda: list(hf.waiting())
        yield lambda: list(hf.stuck())
        yield lambda: hf.verify(deep=True)
        yield hf.fingerprint


def change(hf: Holdfast, name: str) -> Iterator[Callable[[], Any]]:
    thread = hf.thread(name)
    yield lambda: thread.save({"messages": [{"role": "user"}] * 50})
    yield lambda: thread.fork(f"{name}/fork", at="@-2")
    yield lambda: thread.rewind("1")
    yield lambda: thread.delete("2")
    yield lambda: _resume(hf, name)
    yield lambda: hf.answer(name, "approve", True)
    yield lambda: _resume(hf, name)
    yield lambda: hf.cancel(name, "enough")
    yield lambda: hf.undo(name, to="1")
    yield lambda: thread.prune(Retention(keep_last=1))


def end(hf: Holdfast, name: str) -> Iterator[Callable[[], Any]]:
    yield hf.optimize
    yield lambda: hf.erase("fork")
    yield lambda: hf.thread("job").drop()
    yield lambda: hf.verify(deep=True)
    yield hf.thread(name).latest


def _resume(hf: Holdfast, name: str) -> None:
    with hf.run(name, start={"n": 0}) as run:
        for _ in run.steps():
            run.tool(act, {"word": "a"})
            run.model(lambda: {"reply": "b"})
            run.tool(pay, {"word": "c"})
            run.wait("approve", timeout=1000.0)
            run.finish()
