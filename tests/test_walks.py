"""Walks: how many Holdfast frames and modules a common call passes through. The numbers may only fall.

    python -m tests.test_walks             print the table, and the frames per module of each walk
    python -m tests.test_walks save        print the frames per function of the walks whose name contains "save"

A frame is a call of a function in src/holdfast, or a resumed generator, in the calling thread. Before Python 3.12 a
comprehension is a frame too, so gains are only checked there.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from unittest.mock import patch

import holdfast
from holdfast.runs.lease import local_seconds

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

T = TypeVar("T")


class Budget(NamedTuple):
    """The most frames and modules of a walk, and the target."""

    frames: int
    modules: int
    target_frames: int
    target_modules: int | None = None


BUDGETS = {
    # walk: frames and modules at most, then the targets of both
    "thread.save": Budget(109, 21, 110, 14),
    "thread.latest, cold": Budget(140, 18, 130, 13),
    "run.tool, irreversible, new": Budget(161, 26, 110, 14),
    "resume after a kill": Budget(205, 36, 170, 22),
    "langgraph put": Budget(230, 31, 250),
    "langgraph put_writes": Budget(71, 20, 120),
    "langgraph get_tuple": Budget(114, 24, 120),
    "langgraph list(limit=5)": Budget(679, 26, 700),
}
GAIN = 0.1  # a walk that is shorter than its budget by more than this share needs a lower budget
ROUNDS = 3  # each walk is measured so often, and the shortest counts

# -- measuring --------------------------------------------------------------------------------------------------------

PACKAGE = f"{Path(holdfast.__file__).parent}{os.sep}"


class Trace:
    """The frames of one walk: how often each function was entered, by (module, function)."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()

    @property
    def frames(self) -> int:
        return self.functions.total()

    @property
    def modules(self) -> Counter[str]:
        modules: Counter[str] = Counter()
        for (module, _), count in self.functions.items():
            modules[module] += count
        return modules

    def of(self, walk: Callable[[], T]) -> T:
        """Call the walk and count its frames. Other threads are not counted, and nothing is collected meanwhile."""
        counted: list[tuple[str, str]] = []

        def count(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(PACKAGE):
                counted.append((code.co_filename, code.co_qualname))

        before = sys.getprofile()
        gc.collect()
        gc.disable()
        sys.setprofile(count)
        try:
            return walk()
        finally:
            sys.setprofile(before)
            gc.enable()
            for file, function in counted:
                module = file.removeprefix(PACKAGE).removesuffix(".py").replace(os.sep, ".")
                self.functions[module, function] += 1


def measured(folder: Path) -> dict[str, Trace]:
    """The shortest trace of each walk, by name."""
    shortest: dict[str, Trace] = {}
    for name, trace in _all_walks(folder):
        if name not in shortest or trace.frames < shortest[name].frames:
            shortest[name] = trace
    return shortest


def _all_walks(folder: Path) -> Iterator[tuple[str, Trace]]:
    yield from _saves(folder / "save.db")
    yield from _cold_loads(folder / "load.db")
    yield from _tool_calls(folder / "tool.db")
    yield from _resumes(folder / "killed")
    yield from _langgraph(folder / "langgraph.db")


# -- the walks --------------------------------------------------------------------------------------------------------


def _message(number: int) -> dict[str, str]:
    return {"role": "user" if number % 2 == 0 else "assistant", "content": f"message {number}: {'words ' * 20}"}


def _conversation(length: int) -> dict[str, Any]:
    return {"messages": [_message(number) for number in range(length)], "plan": "write an essay"}


def _saves(store: Path) -> Iterator[tuple[str, Trace]]:
    """Save one more message after 55, with a handle that has saved before."""
    with holdfast.open(store, durability="off") as hf:
        thread = hf.thread("essay")
        for length in range(51, 56):
            thread.save(_conversation(length))
        for length in range(56, 56 + ROUNDS):
            trace = Trace()
            trace.of(partial(thread.save, _conversation(length)))
            yield "thread.save", trace


def _cold_loads(store: Path) -> Iterator[tuple[str, Trace]]:
    """Load 55 messages of five saves, with a new handle."""
    with holdfast.open(store, durability="off") as hf:
        for length in range(51, 56):
            hf.thread("essay").save(_conversation(length))
    for _ in range(ROUNDS + 1):
        with holdfast.open(store, durability="off") as hf:
            thread, trace = hf.thread("essay"), Trace()
            latest = trace.of(thread.latest)
            assert latest is not None
            assert latest.state == _conversation(55)
            yield "thread.latest, cold", trace


@holdfast.tool(effect="irreversible")
def pay(amount: int) -> str:
    """Pay; in a process that is to be killed, die in the third step."""
    if "--die" in sys.argv and amount == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


def _tool_calls(store: Path) -> Iterator[tuple[str, Trace]]:
    """Call a tool that cannot be undone for the first time, in a later step of a run."""
    with (
        # Every 50 ms a run also looks for entries of other processes. The stopped clock prevents that.
        patch("holdfast.runs.journal.local_seconds", return_value=local_seconds()),
        holdfast.open(store, durability="off") as hf,
        hf.run("order", start={"paid": 0}, lease=600) as run,
    ):
        for step in run.steps():
            run.model(_message, step)
            trace = Trace()
            trace.of(partial(run.tool, pay, {"amount": step}, key=f"call-{step}"))
            if step > 2:
                yield "run.tool, irreversible, new", trace
            if step == 2 + ROUNDS:
                run.finish()


def _work(store: Path) -> None:
    """A run that is killed inside the tool of its third step."""
    with holdfast.open(store) as hf, hf.run("order", start={"paid": 0}, lease=600) as run:
        for step in run.steps():
            run.model(_message, step)
            run.tool(pay, {"amount": step}, key=f"call-{step}")
            run.state["paid"] += 1


def _resumes(folder: Path) -> Iterator[tuple[str, Trace]]:
    """Enter the block of a run whose process was killed."""
    folder.mkdir()
    program = [sys.executable, "-m", "tests.test_walks", "--die", str(folder / "agent.db")]
    killed = subprocess.run(program, cwd=Path(__file__).parent.parent, check=False)
    assert killed.returncode == -signal.SIGKILL
    for number in range(ROUNDS + 1):
        copy = shutil.copytree(folder, folder.with_name(f"copy-{number}"))
        with ExitStack() as stack:
            hf = stack.enter_context(holdfast.open(copy / "agent.db", durability="off"))
            block, trace = hf.run("order", lease=600), Trace()
            run = trace.of(block.__enter__)
            stack.push(block)
            assert (run.attempt, run.step, run.state) == (2, 3, {"paid": 2})
            yield "resume after a kill", trace


TURNS = 14
LANGGRAPH = ("get_tuple", "put_writes", "put", "list(limit=5)")


def _langgraph(store: Path) -> Iterator[tuple[str, Trace]]:
    """Use a saver as LangGraph does, after 14 turns: load, store the write of one message, then its checkpoint."""
    from holdfast.adapters.langgraph import HoldfastSaver

    with holdfast.open(store, durability="off") as hf:
        saver = HoldfastSaver(hf)
        for thread in range(ROUNDS):
            for step in range(TURNS):
                _turn(saver, thread, step)
            traces = {name: Trace() for name in LANGGRAPH}
            _turn(saver, thread, TURNS, traces)
            yield from ((f"langgraph {name}", trace) for name, trace in traces.items())


def _turn(saver: BaseCheckpointSaver[str], thread: int, step: int, traces: dict[str, Trace] | None = None) -> None:
    """One superstep of a graph whose only node answers."""
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.base import empty_checkpoint

    def call(name: str, function: Callable[..., T], *given: Any) -> T:
        return function(*given) if traces is None else traces[name].of(lambda: function(*given))

    latest: Any = {"configurable": {"thread_id": f"chat-{thread}", "checkpoint_ns": ""}}
    found = call("get_tuple", saver.get_tuple, latest)
    assert (found is None) == (step == 0)
    config, messages = (latest, []) if found is None else (found.config, found.checkpoint["channel_values"]["messages"])
    message = AIMessage(f"message {step}: {'words ' * 20}", id=f"message-{step}")
    if step > 0:
        call("put_writes", saver.put_writes, config, [("messages", [message])], f"task-{step}", "~__pregel_pull, bot")
    version, seen = f"{step + 1:032}.0.5", f"{step:032}.0.5"
    checkpoint = {
        **empty_checkpoint(),
        "channel_values": {"messages": [*messages, message]},
        "channel_versions": {"messages": version, "branch:to:bot": version},
        "versions_seen": {"__input__": {}, "bot": {"branch:to:bot": seen}},
    }
    call("put", saver.put, config, checkpoint, {"source": "loop", "step": step}, checkpoint["channel_versions"])
    if traces is not None:
        listed = call("list(limit=5)", lambda: [*saver.list(latest, limit=5)])
        assert [len(each.checkpoint["channel_values"]["messages"]) for each in listed] == [15, 14, 13, 12, 11]


# -- the test ---------------------------------------------------------------------------------------------------------


def test_walks_stay_short(tmp_path: Path) -> None:
    problems: list[str] = []
    for name, trace in measured(tmp_path).items():
        budget = BUDGETS[name]
        for unit, now, allowed in (
            ("frames", trace.frames, budget.frames),
            ("modules", len(trace.modules), budget.modules),
        ):
            if now > allowed:
                problems.append(f"{name}: {now} {unit}, more than the budget of {allowed}")
            elif now < allowed * (1 - GAIN) and sys.version_info < (3, 12):
                problems.append(f"{name}: lower the budget to {now} {unit} (it is {allowed}), to keep the gain")
    assert not problems, "\n".join([*problems, "python -m tests.test_walks shows where the frames are"])


# -- the command ------------------------------------------------------------------------------------------------------


def _table(traces: dict[str, Trace]) -> Iterator[str]:
    yield f"{'walk':28} {'frames':>7} {'budget':>7} {'target':>7}   {'modules':>7} {'budget':>7} {'target':>7}"
    for name, trace in traces.items():
        budget = BUDGETS[name]
        yield (
            f"{name:28} {trace.frames:7} {budget.frames:7} {budget.target_frames:7}   "
            f"{len(trace.modules):7} {budget.modules:7} {budget.target_modules or '-':>7}"
        )


def _details(traces: dict[str, Trace], wanted: str | None) -> Iterator[str]:
    for name, trace in traces.items():
        if wanted is None:
            yield f"\n{name}: frames per module"
            yield from (f"{count:7}  {module}" for module, count in trace.modules.most_common())
        elif wanted in name:
            yield f"\n{name}: frames per function"
            yield from (f"{n:7}  {module}  {function}" for (module, function), n in trace.functions.most_common())


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--die"]:
        _work(Path(arguments[1]))
    with tempfile.TemporaryDirectory() as folder:
        traces = measured(Path(folder))
    wanted = arguments[0] if arguments else None
    print("\n".join([*_table(traces), *_details(traces, wanted)]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
