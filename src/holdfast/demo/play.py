"""The play: invoices, a model server, and clerks that a killer kills at random moments.

Two clerks are always running. The one that holds the run is killed with SIGKILL, which no program can catch, at a
random moment; the other resumes the run. The seed determines the invoices and how long each clerk lives; the exact
point of a kill depends on the machine.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import holdfast
from holdfast.errors import HoldfastError

THREAD = "invoices"
CLERKS = 2
LONGEST_LIFE = 0.8  # seconds a clerk may hold the run
MOST_KILLS = 30
KILLED_FOR = 20.0  # seconds; then the clerks work undisturbed, so that the play also ends on a slow machine
DEADLINE = 300.0  # seconds
LOOK_EVERY = 0.02
SUPPLIERS = ("Northern Mill", "Ink & Sons", "Harbour Freight", "Paper Union")
CLERK = "holdfast.demo.clerk"
MODEL = "holdfast.demo.scripted_model"


class Papers:
    """The folder of a run: invoices in, ledger and logs out."""

    def __init__(self, folder: Path, invoices: int, seed: int) -> None:
        self.folder = folder
        self.expected: list[str] = []
        random = Random(seed)  # noqa: S311 - nothing secret
        for kind in ("invoices", "deliveries"):
            (folder / kind).mkdir(parents=True)
        self.names = [f"INV-{number:03}" for number in range(1, invoices + 1)]
        wrong = set(random.sample(self.names, max(2, invoices // 4)))
        for name in self.names:
            ordered, price, to = random.randint(2, 90), random.randint(3, 40), random.choice(SUPPLIERS)
            delivered = ordered - (random.randint(1, ordered - 1) if name in wrong else 0)
            self._write("invoices", name, ordered=ordered, price=price, supplier=to)
            self._write("deliveries", name, delivered=delivered)
            self.expected.append(
                f"dispute,{name},ordered {ordered} but got {delivered}"
                if name in wrong
                else f"pay,{name},{ordered * price},{to}"
            )

    def _write(self, kind: str, name: str, **content: Any) -> None:
        (self.folder / kind / f"{name}.json").write_text(json.dumps({"invoice": name, **content}), "utf-8")

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        # A line without a newline is still being written.
        return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []

    def records(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines(name)]

    def record(self, name: str, **details: Any) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), **details}) + "\n")


class Play:
    """A run with its model server and its clerks, until the work is done."""

    def __init__(self, papers: Papers, processes: contextlib.ExitStack, *, clerks: int, clerk: str = CLERK) -> None:
        """`clerk` is the module that a clerk's process runs."""
        self.papers = papers
        self._processes = processes
        self._clerk = clerk
        self._model = self._start(MODEL, str(papers.folder), stdout=subprocess.PIPE)
        if self._model.stdout is None:
            raise HoldfastError("the model server of the demo has no output")
        self._port = self._model.stdout.readline().decode().strip()
        task = {"role": "user", "content": "Pay what is right, dispute what is not.", "invoices": papers.names}
        self.hf = processes.enter_context(holdfast.open(papers.folder / "agent.db"))
        self.hf.submit("clerk", THREAD, start={"messages": [task]})
        self.clerks = [self.hire() for _ in range(clerks)]

    def hire(self) -> subprocess.Popen[bytes]:
        return self._start(self._clerk, str(self.papers.folder), self._port)

    def _start(self, module: str, *arguments: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=stdout)  # noqa: S603
        self._processes.callback(_end, process)
        return process

    @property
    def completed(self) -> bool:
        return any(info.status == "completed" for info in self.hf.threads(prefix=THREAD))

    @property
    def state(self) -> Any:
        return self.hf.thread(THREAD).load("@-1").state

    def send_home(self) -> list[int]:
        """Send SIGTERM: each worker ends its step and exits. Returns the exit codes."""
        for clerk in self.clerks:
            clerk.send_signal(signal.SIGTERM)
        return [clerk.wait(DEADLINE) for clerk in self.clerks]


class Killer:
    """Kills the clerk that holds the run, and answers the questions of the run."""

    def __init__(self, play: Play, seed: int, most: int) -> None:
        self._play = play
        self._most = most
        self._random = Random(f"{seed}/kills")  # noqa: S311 - nothing secret
        self._seen = self._disputes = 0
        self._holder: int | None = None
        self._dies_at = 0.0
        self._ends_at = time.monotonic() + KILLED_FOR
        self.kills = 0
        self._had_happened = False
        self.news = "waiting for a clerk"

    def look(self) -> None:
        events = self._play.papers.records("events.jsonl")
        for event in events[self._seen :]:
            if event["event"] == "claim":
                self._holder = event["pid"]
                self._dies_at = time.monotonic() + self._random.uniform(0.02, LONGEST_LIFE)
                self.news = f"clerk {event['pid']} has the run, in step {event['step']}"
            elif event["event"] == "leave" and event["pid"] == self._holder:
                self._holder = None
        self._seen = len(events)
        self._settle()
        if self._holder is not None and self.kills < self._most and self._is_time():
            self._kill(self._holder)

    def _is_time(self) -> bool:
        """Kill at random moments, and, until one such call was settled, when a letter is posted but not recorded."""
        disputes = sum(line.startswith("dispute") for line in self._play.papers.lines("ledger.csv"))
        posted, self._disputes = disputes > self._disputes, disputes
        return self._dies_at < time.monotonic() < self._ends_at or (posted and not self._had_happened)

    def _kill(self, pid: int) -> None:
        clerk = next((clerk for clerk in self._play.clerks if clerk.pid == pid), None)
        self._holder = None
        if clerk is None:
            return
        clerk.kill()
        if clerk.wait(DEADLINE) != -signal.SIGKILL:
            raise HoldfastError(f"clerk {pid} ended by itself, with exit code {clerk.returncode}")
        started = [event for event in self._play.papers.records("events.jsonl") if event["pid"] == pid]
        during = started[-1]["call"] if started[-1]["event"] == "begin" else None
        self._play.papers.record("kills.jsonl", pid=pid, during=during)
        self._play.clerks.remove(clerk)
        self._play.clerks.append(self._play.hire())
        self.kills += 1
        self.news = f"clerk {pid} was KILLED {when(during)}"

    def _settle(self) -> None:
        """Settle a call in doubt like a person: check whether it happened."""
        papers = self._play.papers
        for effect in self._play.hf.effects(THREAD):
            if effect.status != "in_doubt" or effect.name != "dispute":
                continue
            call = effect.arguments
            happened = f"dispute,{call['invoice']},{call['reason']}" in papers.lines("ledger.csv")
            result = {"invoice": call["invoice"], "disputed": call["reason"]}
            try:
                self._play.hf.settle(THREAD, effect, holdfast.Happened(result) if happened else holdfast.NotDone())
            except holdfast.Conflict:
                return  # the clerk that asked has not released the run yet
            papers.record("settled.jsonl", call=f"dispute {call['invoice']}", happened=happened)
            self._had_happened = self._had_happened or happened
            self.news = f"dispute {call['invoice']} was in doubt: {'it happened' if happened else 'it did not happen'}"


def when(during: str | None) -> str:
    return f"during {during}" if during else "between two calls"


def outcome(record: dict[str, Any]) -> str:
    return "it happened" if record["happened"] else "it did not happen"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End all remaining processes."""
    with process:
        process.kill()
