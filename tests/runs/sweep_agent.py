"""The agent of the kill sweep and the world around it: what a child of the sweep runs.

The world keeps its own books, in files that Holdfast knows nothing of: which requests the model got, and what the tools
did. A tool is what a service is: it has acted when its line is in the ledger, whatever becomes of the caller.

Some of what the agent calls fails at the first try and never again. The agent catches that and acts otherwise, so a
process that tries again after a crash finds open what was closed when the agent chose its way.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

import holdfast
from holdfast import AfterModel, AfterToolCall, EveryN, EverySeconds, Happened, Holdfast, Never, NotDone, Policy, Run
from holdfast.runs.flusher import flusher
from holdfast.urls import open_store
from tests.runs.sweep_faults import Countdown, counted, hook_disk, hook_lines

Layer = Literal["disk", "verbs", "lines"]
THREAD = "job"
POLICIES: dict[str, Policy] = {
    "AfterToolCall": AfterToolCall(),
    "AfterModel": AfterModel(),
    "EveryN": EveryN(2),
    "EverySeconds": EverySeconds(0.000_001),  # every boundary: a time that a test can repeat
    "Never": Never(),
}
# By the number of replies so far. Call ids begin anew in every reply, as those of some models do. A call of the first
# column that is no tool is a detour of the agent.
SCRIPT: tuple[tuple[tuple[str, str], ...], ...] = (
    (("look_up", "price of paper"), ("reserve", "paper")),
    (("advised", "route"),),
    (("transfer", "40 to the mill"), ("in_stock", "ink")),
    (("notify", "the mill"), ("look_up", "address of the mill"), ("paid", "12")),
    (("order", "paper"), ("signed", "contract"), ("file_report", "done")),
)
OUTSIDE = ("engage", "dismiss")  # before the loop of steps and after it
ACTS = ("transfer", "order", "engage")  # with an identity: asked for again in other words, they do not happen again
EFFECTS = ("reserve", "transfer", "notify", "order", "file_report", *OUTSIDE)
# Of each detour, what stands in for what: exactly one of them is to happen.
ALTERNATIVES = (("take_advice", "improvise"), ("pick", "purchase"), ("charge", "invoice"), ("sign",))
# What fails at the first try, and how often it is tried when nothing happens to the agent.
FLAKY = {"adviser on route": 1, "adviser on contract": 2, "stock of ink": 1, "charge 12": 1, "sign contract": 2}
SETTLEMENTS = 10  # more than any run needs
BRIEFLY = 0.6  # seconds after which the answer of a probe counts


class Unreachable(Exception):
    """A read gave nothing."""


class Declined(Exception):
    """A service did nothing, and says so."""


class Task(msgspec.Struct):
    """What a child is told: where the world and the store are, and where to die."""

    folder: str
    url: str
    namespace: str
    policy: str
    layer: Layer
    at: int = 0
    kills: int = 0  # before this child
    careless: bool = False  # declares that an order may be made twice, to see that the sweep notices


class Ended(msgspec.Struct):
    """What a child saw when the run was complete."""

    state: Any
    result: Any
    settled: int
    given_up: list[str]
    kept: int
    places: list[str]  # where it could have been killed


class World:
    """What is outside of the store."""

    def __init__(self, folder: Path, tick: Callable[[str], None], *, careless: bool = False) -> None:
        self._folder = folder
        self._tick = tick
        self._in_doubt: dict[str, Any] = {"notify": "give_up", "order": "rerun" if careless else "ask"}

    def append(self, book: str, **entry: str) -> None:
        name = entry.get("tool", entry["what"])
        self._tick(f"before {book} {name}")
        line = json.dumps(entry).encode() + b"\n"
        book_file = os.open(self._folder / book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(book_file, line)
        finally:
            os.close(book_file)
        self._tick(f"after {book} {name}")

    def entries(self, book: str) -> list[dict[str, str]]:
        path = self._folder / book
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def model(self, *, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """A scripted model: its reply depends on how many it gave, and on nothing else."""
        turn = sum(message["role"] == "assistant" for message in messages)
        self.append("requests", what=str(turn))
        if turn == len(SCRIPT):
            return {"role": "assistant", "content": "all is done", "calls": [], "final": True}
        calls = [
            {"id": f"call_{n}", "name": name, "args": {"what": what}} for n, (name, what) in enumerate(SCRIPT[turn])
        ]
        return {"role": "assistant", "content": f"turn {turn}", "calls": calls, "final": False}

    def planner(self, messages: list[dict[str, Any]]) -> str:
        """A model that is asked before the loop. What it is asked changes with every step."""
        self.append("requests", what="plan")
        return "courier"

    def adviser(self, what: str) -> str:
        """A model that is down when it is asked for the first time."""
        self.fail_once(f"adviser on {what}", ConnectionError)
        return f"advice on {what}"

    def fail_once(self, name: str, error: type[Exception]) -> None:
        """Fail at the first request of a name, whichever process makes it."""
        requests = [entry for entry in self.entries("flaky") if entry["what"] == name]
        self.append("flaky", what=name)
        if not requests:
            raise error(f"{name} failed")

    def tools(self) -> list[Callable[..., Any]]:
        stand_ins = [tool for tools in ALTERNATIVES for tool in tools if tool not in ("charge", "sign")]
        return [
            self._look_up(),
            self._stock(),
            self._reserve(),
            *(self._act(name) for name in ("transfer", "notify", "order", "file_report", *OUTSIDE, *stand_ins)),
            *(self._declining(name) for name in ("charge", "sign")),
        ]

    def _look_up(self) -> Callable[..., Any]:
        @holdfast.tool(effect="read")
        def look_up(what: str) -> dict[str, str]:
            self.append("readings", what=what)
            return {"found": what}

        return look_up

    def _stock(self) -> Callable[..., Any]:
        @holdfast.tool(effect="read")
        def stock(what: str) -> dict[str, str]:
            self.fail_once(f"stock of {what}", Unreachable)
            return {"in stock": what}

        return stock

    def _declining(self, name: str) -> Callable[..., Any]:
        """A tool that does nothing when it is called for the first time, and says so."""

        def act(what: str) -> dict[str, str]:
            self.fail_once(f"{name} {what}", Declined)
            self.append("ledger", tool=name, what=what)
            return {name: what}

        return holdfast.tool(name=name, in_doubt="ask", not_done=(Declined,))(act)

    def _reserve(self) -> Callable[..., Any]:
        @holdfast.tool(effect="idempotent")
        def reserve(what: str, idempotency_key: str) -> dict[str, str]:
            # As a service does that is given a key: the second request of a key is answered and does nothing.
            if not any(entry.get("key") == idempotency_key for entry in self.entries("ledger")):
                self.append("ledger", tool="reserve", what=what, key=idempotency_key)
            return {"reserve": what}

        return reserve

    def _act(self, name: str) -> Callable[..., Any]:
        def act(what: str, words: str = "") -> dict[str, str]:
            self.append("ledger", tool=name, what=what)
            return {name: what}

        def probe(what: str, words: str = "") -> Happened | NotDone:
            return self.outcome(name, what)

        identity = ("what",) if name in ACTS else None
        if name == "transfer":
            return holdfast.tool(name=name, probe=probe, probe_after=0.01, identity=identity)(act)
        return holdfast.tool(name=name, in_doubt=self._in_doubt.get(name, "ask"), identity=identity)(act)

    def outcome(self, name: str, what: str, words: str = "") -> Happened | NotDone:
        """What somebody finds who looks into the ledger."""
        done = any((entry["tool"], entry["what"]) == (name, what) for entry in self.entries("ledger"))
        return Happened({name: what}) if done else NotDone()


def opened(task: Task, countdown: Countdown) -> tuple[Holdfast, World]:
    folder = Path(task.folder)
    world = World(folder, countdown.tick, careless=task.careless)
    tools = world.tools()
    if task.layer == "verbs":
        flusher.is_off = True  # the points have numbers; the other layers have it
        store = open_store(task.url, namespace=task.namespace, durability="full")
        return Holdfast(counted(store, countdown), tools=tools), world
    if task.layer == "disk":
        hook_disk(countdown)
    elif task.at:
        hook_lines(countdown)
    return holdfast.open(task.url, namespace=task.namespace, tools=tools), world


# -- the agent ---------------------------------------------------------------------------------------------------------


def agent(run: Run, world: World) -> None:
    """The loop of the documents, with calls before it and after it."""
    if run.status == "completed":
        return
    courier = run.model(world.planner, run.state["messages"])
    run.tool("engage", {"what": courier})
    for _ in run.steps():
        reply = run.model(world.model, messages=run.state["messages"])
        run.state["messages"].append(reply)
        if reply["final"]:
            break
        for call in reply["calls"]:
            detour = DETOURS.get(call["name"])
            if detour is None:
                result = run.tool(call["name"], call["args"], key=call["id"])
            else:
                result = detour(run, world, **call["args"])
            run.state["messages"].append({"role": "tool", "id": call["id"], "content": result})
    for name, what in (("order", "paper"), ("transfer", "40 to the mill")):
        words = f"as said, at {time.time()}"
        assert run.tool(name, {"what": what, "words": words}, key=f"{name} once more") == {name: what}
    run.tool("dismiss", {"what": courier})
    run.finish("all is done")


def advised(run: Run, world: World, what: str) -> Any:
    """A model call that fails, and another way."""
    try:
        advice = run.model(world.adviser, what, key="adviser")
    except ConnectionError:
        return run.tool("improvise", {"what": what}, key="call_0")
    return run.tool("take_advice", {"what": advice}, key="call_0")


def in_stock(run: Run, world: World, what: str) -> Any:
    """A read that fails, and another way."""
    try:
        run.tool("stock", {"what": what}, key="call_0")
    except Unreachable:
        return run.tool("purchase", {"what": what}, key="call_0")
    return run.tool("pick", {"what": what}, key="call_0")


def paid(run: Run, world: World, what: str) -> Any:
    """A tool that did nothing, and another that stands in for it."""
    try:
        return run.tool("charge", {"what": what}, key="call_0")
    except Declined:
        return run.tool("invoice", {"what": what}, key="call_0")


def signed(run: Run, world: World, what: str) -> Any:
    """A model and a tool that fail, and the same calls once more."""
    again_after(ConnectionError, lambda: run.model(world.adviser, what))
    return again_after(Declined, lambda: run.tool("sign", {"what": what}))


def again_after(error: type[Exception], call: Callable[[], Any]) -> Any:
    try:
        return call()
    except error:
        return call()


DETOURS: dict[str, Callable[..., Any]] = {
    "advised": advised,
    "in_stock": in_stock,
    "paid": paid,
    "signed": signed,
}


def work_to_the_end(hf: Holdfast, world: World, policy: Policy) -> int:
    """Run, and settle what is asked, until the run is complete; how many calls had to be settled."""
    settled = 0
    for _ in range(SETTLEMENTS):
        with hf.run(THREAD, start={"messages": [{"role": "user", "content": "Buy paper."}]}, policy=policy) as run:
            agent(run, world)
        if run.status == "completed":
            return settled
        assert run.status == "waiting", f"the run is {run.status}"
        if not list(hf.waiting()):
            time.sleep(BRIEFLY)  # until the probe counts
            continue
        settled += 1
        # In doubt, and declared so: the question names the call and its arguments.
        for effect in hf.effects(THREAD):
            if effect.status == "in_doubt":
                hf.settle(THREAD, effect, world.outcome(effect.name, **effect.arguments))
    raise AssertionError("the run asks without end")


# -- what a child runs -------------------------------------------------------------------------------------------------


def work(path: Path, pipe: int) -> None:
    """Do the job, and die at the place that the task names."""
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    countdown = Countdown(task.at, pipe)
    hf, world = opened(task, countdown)
    work_to_the_end(hf, world, POLICIES[task.policy])
    os.write(pipe, b"ended\n")


def finish(path: Path, pipe: int) -> None:
    """Look at what a dead process left, do the rest of the job, look again, and report."""
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    countdown = Countdown(0, pipe)
    hf, world = opened(task, countdown)
    look(hf)
    if task.kills == 1:
        look_for_interrupted(hf)
    settled = work_to_the_end(hf, world, POLICIES[task.policy])
    look(hf)
    report = hf.verify()
    assert report.ok, report.problems
    thread = hf.thread(THREAD)
    latest = thread.latest()
    assert latest is not None
    with hf.run(THREAD) as run:
        assert run.status == "completed"
    given_up = [effect.name for effect in hf.effects(THREAD) if effect.status == "given_up"]
    ended = Ended(latest.state, run.result, settled, given_up, thread.count(), countdown.places)
    hf.close()
    os.write(pipe, msgspec.json.encode(ended) + b"\n")


def look(hf: Holdfast) -> None:
    """AssertionError if a checkpoint holds a call whose result is neither in it nor in the journal."""
    thread = hf.thread(THREAD)
    if thread.latest() is None:
        return
    journal = {(effect.step, effect.key) for effect in hf.effects(THREAD)}
    for checkpoint in thread.history():
        missing = dangling(thread.load(checkpoint).state["messages"], checkpoint.step, journal)
        assert not missing, f"checkpoint {checkpoint.seq} holds calls without a result: {missing}"


def look_for_interrupted(hf: Holdfast) -> None:
    """AssertionError unless a run whose only process died is known to be interrupted."""
    latest = hf.thread(THREAD).latest()
    found = [interrupted.thread for interrupted in hf.interrupted()]
    unfinished = latest is not None and latest.status != "completed"
    assert found == ([THREAD] if unfinished else []), f"interrupted are: {found}"


def dangling(messages: list[dict[str, Any]], step: int, journal: set[tuple[int, str]]) -> list[str]:
    """The calls of a state whose results are neither in it nor in the journal of its step."""
    missing: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            answered = {after["id"] for after in _until_reply(messages[number + 1 :])}
            missing += [
                f"{call['name']} {call['id']}"
                for call in message["calls"]
                if call["id"] not in answered and (step, f"{call['name']}/{call['id']}") not in journal
            ]
    return missing


def _until_reply(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ends = (number for number, message in enumerate(messages) if message["role"] != "tool")
    return messages[: next(ends, len(messages))]
