"""Stores with something of everything in them, for the tests of the page."""

from __future__ import annotations

import os
import signal
from typing import Any

import holdfast
from holdfast import Holdfast, Run, Usage

_SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE = f"{_SCRIPT}\u202egpj.exe\u2066 & 'x' \"y\""
HOSTILE_THREAD = f"hostile/{HOSTILE}"
SECRET = "sk-secret-1234567890"  # noqa: S105 - none
BOOK, LETTERS, APPROVAL, ORDER = "writer/book", "letters/in-doubt", "approvals/42", "shop/order-17"


@holdfast.tool(effect="irreversible", in_doubt="ask")
def post(letter: str) -> str:
    raise ConnectionError("the line went dead")  # it may have been posted


@holdfast.tool(effect="irreversible")
def pay(amount: int) -> dict[str, int]:
    return {"paid": amount}


@holdfast.tool(effect="read")
def look_up(item: str) -> dict[str, Any]:
    return {"item": item, "price": 4}


def ask_model() -> dict[str, Any]:
    return {"content": "stamping", "usage": {"input_tokens": 210, "output_tokens": 12}}


def fill(hf: Holdfast) -> None:
    """A book with branches and a fork, something hostile, a call in doubt, a question, a failure."""
    book(hf)
    hostile = [{"role": "user", "content": HOSTILE}, {"role": HOSTILE, "content": "A" * 50_000}]
    hf.thread(HOSTILE_THREAD).save({"messages": hostile, HOSTILE: [HOSTILE]}, label="x", tags=("<b>",), reason=HOSTILE)
    letters(hf)
    asking(hf)
    try:
        with hf.run("broken", start={"key": SECRET}):
            raise ValueError(f"no such supplier {SECRET} {HOSTILE}")
    except ValueError:
        pass
    paying(hf)


def book(hf: Holdfast) -> None:
    thread = hf.thread(BOOK)
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You write books."}]
    for chapter in range(1, 13):
        messages.append({"role": "assistant", "content": f"Chapter {chapter}. " + "Once upon a time. " * chapter})
        usage = Usage(input=200 * chapter, output=80 * chapter, cost=0.012 * chapter)
        label = "good" if chapter == 4 else None
        state = {"messages": messages, "chapter": chapter, "notes": {"mood": ["dark", "wet"], "done": chapter > 8}}
        thread.save(state, usage=usage, label=label, tags=("draft",) if chapter % 5 == 0 else (), agent="writer")
        if chapter == 8:
            thread.rewind("@5")
            messages = messages[:-3]
    thread.fork("writer/book-b", at="@4")


def letters(hf: Holdfast) -> None:
    """A call that raised: nobody knows whether the letter was posted."""
    asked = {
        "role": "assistant",
        "content": "I look it up, and post the letter.",
        "calls": [
            {"id": "call_0", "name": "look_up", "args": {"item": "paper"}},
            {"id": "call_1", "name": "post", "args": {"letter": f"Dear Sir, {SECRET}"}},
        ],
    }

    def agent(run: Run) -> None:
        for step in run.steps():
            if step == 1:
                reply = run.model(lambda: {**asked, "usage": {"input_tokens": 120, "output_tokens": 30}})
                run.state["messages"].append(reply)
                found = run.tool("look_up", {"item": "paper"}, key="call_0")
                run.state["messages"].append({"role": "tool", "id": "call_0", "content": found})
                continue
            run.tool("post", {"letter": f"Dear Sir, {SECRET}"}, key="call_1")

    for _ in range(2):  # the second finds it in doubt, and asks
        start = {"messages": [{"role": "user", "content": "Post it."}]}
        with hf.run(LETTERS, start=start, tools=[post, look_up]) as run:
            agent(run)


def asking(hf: Holdfast) -> None:
    """A run that waits for an answer."""
    with hf.run(APPROVAL, start={"messages": [{"role": "user", "content": "Buy paper."}]}, agent="buyer") as run:
        for _ in run.steps():
            run.wait("approve?", {"amount": 420})


def paying(hf: Holdfast) -> None:
    """A completed run with an effect that a rewind would pass."""
    with hf.run("payments", start={"messages": []}, tools=[pay], agent="clerk") as run:
        for step in run.steps():
            run.model(lambda: {"content": "pay", "usage": {"input_tokens": 10, "output_tokens": 3}})
            run.tool("pay", {"amount": step}, key=f"pay-{step}")
            if step == 3:
                run.finish("paid")
                break


def ordering(hf: Holdfast) -> None:
    """A run with two models, children, and messages in Markdown."""

    def reply(step: int) -> dict[str, Any]:
        text = f"## Order {step}\n\nI look up **paper** and `ink`, then I pay.\n\n- paper\n- ink\n"
        usage = {"input_tokens": 100 * step, "output_tokens": 20}
        return {"model": ("small-1", "large-2")[step % 2], "role": "assistant", "content": text, "usage": usage}

    start = {"messages": [{"role": "user", "content": "Buy paper and ink."}]}
    with hf.run(ORDER, start=start, tools=[pay, look_up], agent="buyer", policy=holdfast.EveryN(1)) as run:
        for step in run.steps():
            run.state["messages"].append(run.model(reply, step))
            run.tool("look_up", {"item": "paper"}, key=f"look-{step}")
            with run.child(f"ink-{step}", start={}) as child:
                for _ in child.steps():
                    child.tool(look_up, {"item": "ink"})
                    child.finish(1)
                    break
            run.tool("pay", {"amount": step}, key=f"pay-{step}")
            if step == 4:
                run.finish("ordered")
                break


def long_run(hf: Holdfast, name: str, steps: int) -> None:
    """A run of many steps, each with a model call and a tool call, and a checkpoint for each."""
    every = holdfast.EveryN(1)
    with hf.run(name, start={"messages": []}, tools=[look_up], policy=every, agent="clerk") as run:
        for step in run.steps():
            reply = run.model(ask_model)
            run.tool("look_up", {"item": "paper"})
            if step % 100 == 0:
                run.state["messages"].append({"role": "assistant", "content": f"{reply['content']} {step}"})
            if step == steps:
                run.finish("all of it")
                break


def interrupted(hf: Holdfast, name: str = "letters/interrupted") -> None:
    """A run whose process was killed inside a tool: only in a store that other processes see."""

    @holdfast.tool(effect="irreversible", in_doubt="ask")
    def stamp(letter: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def agent(run: Run) -> None:
        for _ in run.steps():
            run.model(ask_model)
            run.tool(look_up, {"item": "stamps"})
            run.tool(stamp, {"letter": "Dear Madam"})

    child = os.fork()
    if not child:
        with hf.run(name, start={"messages": []}, agent="clerk") as run:
            agent(run)
    os.waitpid(child, 0)
