"""The kill experiment for adapters: a scripted model, a tool that reads, a tool that buys, and a process that dies.

A program of an adapter's tests makes an agent of its framework with a `World`, in a function `run_agent`. It is started
twice: the first process is killed inside a tool or a stream, the second one resumes the run.

python -m tests.adapters.kill_world MODULE    fork a process for each line of standard input: [FOLDER, SCENARIO, POLICY]

Most frameworks take seconds to import. So a parent imports the program once, and each process is a fork of it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import holdfast
from holdfast import Happened, NotDone

POLICIES: dict[str, dict[str, Any]] = {
    "ask": {},
    "probe": {"in_doubt": "probe"},
    "give_up": {"in_doubt": "give_up"},
    "rerun": {"in_doubt": "rerun"},
}


CONTINUED = {"continue": "t", "continue fork": "f"}  # scenarios without an input, and their threads


def script_of(scenario: str) -> str:
    """The script of a scenario."""
    script = scenario.removesuffix(" alone")
    return script if script in SCRIPTS else "second"


class Use(NamedTuple):
    """One tool call that the model asks for."""

    tool: str
    args: dict[str, Any]
    id: str


def look_up(item: str, id: str) -> Use:
    return Use("look_up", {"item": item}, id)


def buy(item: str, id: str) -> Use:
    return Use("buy", {"item": item, "amount": 3}, id)


# What the model replies, turn by turn: tool calls, or the final text.
SCRIPTS: dict[str, list[list[Use] | str]] = {
    "second": [[look_up("paper", "c1")], [buy("paper", "c2")], "bought"],
    "three": [[look_up("paper", "c1"), buy("ink", "c2"), buy("paper", "c3")], "bought"],
    "parallel": [[buy("ink", "c1"), buy("paper", "c2")], "bought"],
    "same ids": [[look_up("ink", "c1")], [look_up("paper", "c1")], [buy("paper", "c1")], "bought"],
    "delegate": [[Use("delegate", {"task": "buy paper"}, "d1")], "delegated"],
    "delegated": [[look_up("paper", "c1")], [buy("paper", "c2")], "bought by the sub-agent"],
    "hand-off": [[Use("transfer_to_buyer", {}, "h1")]],
    "stream": [[look_up("paper", "c1")], "read"],
    "four": [[look_up("paper", "c1")], [look_up("ink", "c2")], [buy("paper", "c3")], [look_up("pen", "c4")], "bought"],
    "cancelled": [[look_up("paper", "c1")], "looked up"],
    "approval": [[look_up("paper", "c1")], [Use("pay", {"item": "paper"}, "p1")], "paid"],
}


class World:
    """Everything outside of the store: a ledger, counts of calls, and whether the first process has died."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = time.monotonic()
        self._points = 0  # that this process has reached
        kill_at = folder / "kill_at"
        self._kill_at = int(kill_at.read_text()) if kill_at.exists() else None

    def note(self, book: str, line: str) -> None:
        with (self.folder / book).open("a") as file:
            file.write(f"{line}\n")

    def lines(self, book: str) -> list[str]:
        path = self.folder / book
        return path.read_text().splitlines() if path.exists() else []

    def die_once(self) -> None:
        """Kill this process, if it is the first."""
        if not (self.folder / "died").exists():
            self.note("died", "here")
            os.kill(os.getpid(), signal.SIGKILL)

    def point(self) -> None:
        """A point at which the first process is killed, if its number is in the file `kill_at`."""
        self._points += 1
        if self._points == 1:
            self.note("first", f"{time.monotonic() - self.started}")
        if self._points == self._kill_at:
            self.die_once()

    def reply(self, script: str, turn: int) -> list[Use] | str:
        """What the model replies in a turn. Each call is counted, because it is paid for."""
        self.note("models", f"{script} {turn}")
        self.point()
        return SCRIPTS[script][turn]

    def look_up(self, item: str) -> int:
        self.point()
        self.note("reads", item)
        self.point()
        if (self.folder / "cancelled").exists():
            with holdfast.open(self.folder / "agent.db") as hf:
                hf.cancel("t", "no longer wanted")
        return {"paper": 4, "ink": 11, "pen": 2}[item]

    def buy(self, item: str, amount: int) -> dict[str, Any]:
        """Buy, and die after the effect if it is paper. The ink that was bought at the same time has ended then."""
        if item == "paper" and (self.folder / "parallel").exists():
            while "ink" not in self.lines("ledger"):
                time.sleep(0.01)
        self.point()
        self.note("ledger", item)
        self.point()
        if item == "paper" and self._kill_at is None:
            time.sleep(0.3)  # the result of the other call is recorded meanwhile
            self.die_once()
        return {"bought": item, "amount": amount}

    def pay(self, item: str) -> str:
        self.note("ledger", item)
        return f"paid for {item}"

    def has_bought(self, item: str, amount: int) -> Happened | NotDone:
        self.note("probes", item)
        return Happened({"bought": item, "amount": amount}) if item in self.lines("ledger") else NotDone()

    def declarations(self, policy: str) -> dict[str, dict[str, Any]]:
        options = dict(POLICIES[policy])
        if policy == "probe":
            options |= {"probe": self.has_bought, "probe_after": 0.1}  # a purchase takes effect at once
        return {"look_up": {"effect": "read"}, "buy": options, "delegate": {"effect": "idempotent"}}


class Outcome(NamedTuple):
    """What the second process printed, and what is in the books."""

    status: str
    result: Any
    seen: Any  # what the model was told about the tools
    models: list[str]
    ledger: list[str]
    reads: list[str]
    questions: list[str]


RunAgent = Callable[[World, holdfast.Holdfast, str, str], tuple[str, Any, Any]]


def main() -> None:
    """The parent of the processes. Prints how each of them ended."""
    run: RunAgent = import_module(sys.argv[1]).run_agent
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _in_child(run, *json.loads(line))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it started ends with it, as on a machine that fails
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def _in_child(run: RunAgent, folder: str, scenario: str, policy: str) -> NoReturn:
    os.setsid()
    world, code = World(Path(folder)), 1
    try:
        with (world.folder / "stderr").open("w") as errors:
            os.dup2(errors.fileno(), 2)
        with holdfast.open(world.folder / "agent.db") as hf:
            status, result, seen = run(world, hf, scenario, policy)
            world.note("ended", f"{time.monotonic() - world.started}")
            questions = [asked.name for asked in hf.waiting()]
        said = {"status": status, "result": result, "seen": seen, "questions": questions}
        (world.folder / "said").write_text(json.dumps(said))
        code = 0
    except BaseException:  # noqa: BLE001 - a traceback for the test
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


@cache
def _parent_of(module: str) -> subprocess.Popen[str]:
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.adapters.kill_world", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_end, parent)
    return parent


def _end(parent: subprocess.Popen[str]) -> None:
    parent.communicate()  # closes its input, and it ends


class Ended(NamedTuple):
    """How a process ended."""

    returncode: int
    stderr: str


def start(module: str, folder: Path, scenario: str, policy: str = "ask") -> Ended:
    """Start the program once, and wait for its end."""
    folder.mkdir(exist_ok=True)
    if scenario in ("three", "parallel"):
        (folder / "parallel").touch()
    if scenario == "cancelled":
        (folder / "cancelled").touch()
    (folder / "said").unlink(missing_ok=True)
    parent = _parent_of(module)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps([str(folder), scenario, policy]) + "\n")
    parent.stdin.flush()
    line = parent.stdout.readline()
    assert line, f"the parent of {module} has ended"
    return Ended(int(line), (folder / "stderr").read_text())


def resumed(module: str, folder: Path, scenario: str, policy: str = "ask") -> Outcome:
    """Start the program again, which must not die."""
    again = start(module, folder, scenario, policy)
    assert again.returncode == 0, again.stderr
    world, said = World(folder), json.loads((folder / "said").read_text())
    return Outcome(
        said["status"],
        said["result"],
        said["seen"],
        world.lines("models"),
        world.lines("ledger"),
        world.lines("reads"),
        said["questions"],
    )


def killed_and_resumed(module: str, folder: Path, scenario: str, policy: str = "ask") -> Outcome:
    """The experiment: the first process is killed, the second resumes."""
    first = start(module, folder, scenario, policy)
    assert first.returncode == -signal.SIGKILL, first.stderr
    return resumed(module, folder, scenario, policy)


if __name__ == "__main__":
    main()
