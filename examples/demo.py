"""An agent pays invoices in processes that are killed again and again. Nothing is paid twice. Offline, some seconds.

    python examples/demo.py [--seed N] [--invoices N] [--kills N] [--plain] [--keep FOLDER]

`clerk.py` is the agent, `scripted_model.py` its model. Two clerks are always running. The one that holds the run is
killed with SIGKILL, which no program can catch, at a random moment; the other resumes the run. The outcome is judged by
the ledger and by the model server's own count of requests, never by Holdfast's journal. The seed determines the
invoices and how long each clerk lives; the exact point of a kill depends on the machine. At the end `holdfast drill`
kills a clerk at every point of a smaller job.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import holdfast

HERE = Path(__file__).resolve().parent
THREAD = "invoices"
CLERKS = 2
LONGEST_LIFE = 0.8  # seconds a clerk may hold the run
MOST_KILLS = 30
DEADLINE = 55.0  # seconds
LOOK_EVERY = 0.02
SUPPLIERS = ("Northern Mill", "Ink & Sons", "Harbour Freight", "Paper Union")


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

    def __init__(self, papers: Papers, processes: contextlib.ExitStack, *, clerks: int) -> None:
        self.papers = papers
        self._processes = processes
        self._model = self._start("scripted_model.py", str(papers.folder), stdout=subprocess.PIPE)
        if self._model.stdout is None:
            raise SystemExit("the model server has no output")
        self._port = self._model.stdout.readline().decode().strip()
        task = {"role": "user", "content": "Pay what is right, dispute what is not.", "invoices": papers.names}
        self.hf = processes.enter_context(holdfast.open(papers.folder / "agent.db"))
        self.hf.submit("clerk", THREAD, start={"messages": [task]})
        self.clerks = [self.hire() for _ in range(clerks)]

    def hire(self) -> subprocess.Popen[bytes]:
        return self._start("clerk.py", str(self.papers.folder), self._port)

    def _start(self, script: str, *arguments: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, str(HERE / script), *arguments], stdout=stdout)
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
        """Kill at a random moment, and, until one such call was settled, when a letter is posted but not recorded."""
        disputes = sum(line.startswith("dispute") for line in self._play.papers.lines("ledger.csv"))
        posted, self._disputes = disputes > self._disputes, disputes
        return time.monotonic() > self._dies_at or (posted and not self._had_happened)

    def _kill(self, pid: int) -> None:
        clerk = next((clerk for clerk in self._play.clerks if clerk.pid == pid), None)
        self._holder = None
        if clerk is None:
            return
        clerk.kill()
        if clerk.wait(DEADLINE) != -signal.SIGKILL:
            raise SystemExit(f"clerk {pid} ended by itself, with exit code {clerk.returncode}")
        begun = [event for event in self._play.papers.records("events.jsonl") if event["pid"] == pid]
        during = begun[-1]["call"] if begun[-1]["event"] == "begin" else None
        self._play.papers.record("kills.jsonl", pid=pid, during=during)
        self._play.clerks.remove(clerk)
        self._play.clerks.append(self._play.hire())
        self.kills += 1
        self.news = f"clerk {pid} was KILLED {_when(during)}"

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


# -- showing -----------------------------------------------------------------------------------------------------------


class Screen:
    """A live display if there is a terminal and `rich`, else plain lines."""

    def __init__(self, *, plain: bool) -> None:
        self._rich = None if plain or not sys.stdout.isatty() else _rich()
        self._live: Any = None
        self._news = ""

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        if self._rich is None:
            yield
            return
        with self._rich("live").Live(refresh_per_second=20) as self._live:
            yield

    def show(self, done: int, of: int, killer: Killer) -> None:
        if self._rich is not None:
            grid = self._rich("table").Table.grid(padding=(0, 2))
            grid.add_row("invoices", self._rich("progress_bar").ProgressBar(total=of, completed=done, width=40))
            grid.add_row("kills", f"[red]{'✗ ' * killer.kills}[/]")
            grid.add_row("now", killer.news)
            self._live.update(grid)
        elif killer.news != self._news:
            print(f"  {killer.news}", flush=True)
        self._news = killer.news

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        print()
        if self._rich is not None:
            table = self._rich("table").Table(title=title, show_header=False, title_justify="left")
            for row in rows:
                table.add_row(*row)
            self._rich("console").Console().print(table)
            return
        print(title)
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            print(f"  {name:<{width}}  {value}")


def _rich() -> Any:
    """Import a module of rich by name; None if rich is not installed. It is optional."""
    try:
        importlib.import_module("rich")
    except ImportError:
        return None
    return lambda name: importlib.import_module(f"rich.{name}")


def timeline(papers: Papers) -> list[tuple[str, str]]:
    rows: list[tuple[float, str]] = []
    claims = 0
    begun: dict[int, str] = {}
    for event in papers.records("events.jsonl"):
        who = f"clerk {event['pid']}"
        call = event.get("call", "")
        match event["event"]:
            case "claim":
                rows.append((event["at"], f"{who} {'resumes' if claims else 'starts'} in step {event['step']}"))
                claims += 1
            case "begin":
                begun[event["pid"]] = call
            case "probe":
                rows.append((event["at"], f"{who} asks the bank about {call}: {_outcome(event)}"))
            case "model" | "tool" if event["recorded"]:
                known = f"{who} does not repeat "
                if rows[-1][1].startswith(known):
                    rows[-1] = (rows[-1][0], f"{rows[-1][1]}, {call}")
                else:
                    rows.append((event["at"], known + call))
            case "leave" if begun.get(event["pid"], "").startswith("dispute"):
                rows.append((event["at"], f"{who} suspends the run: {begun[event['pid']]} is in doubt"))
    kills, settled = papers.records("kills.jsonl"), papers.records("settled.jsonl")
    rows += [(kill["at"], f"clerk {kill['pid']} KILLED {_when(kill['during'])}") for kill in kills]
    rows += [(said["at"], f"a person settles {said['call']}: {_outcome(said)}") for said in settled]
    rows.sort()
    return [(f"{at - rows[0][0]:6.2f} s", text) for at, text in rows]


def _when(during: str | None) -> str:
    return f"during {during}" if during else "between two calls"


def _outcome(record: dict[str, Any]) -> str:
    return "it happened" if record["happened"] else "it did not happen"


def figures(papers: Papers, calm: Papers) -> list[tuple[str, str]]:
    events = papers.records("events.jsonl")
    answered = Counter((event["event"], event["recorded"]) for event in events if event["event"] in ("model", "tool"))
    claims = sum(event["event"] == "claim" for event in events)
    requests, needed = len(papers.lines("requests.jsonl")), len(calm.lines("requests.jsonl"))
    probes = [event["happened"] for event in events if event["event"] == "probe"]
    settled = [f"{record['call']}: {_outcome(record)}" for record in papers.records("settled.jsonl")]
    kinds = Counter(line.partition(",")[0] for line in papers.lines("ledger.csv"))
    return [
        ("kills (SIGKILL)", str(len(papers.lines("kills.jsonl")))),
        ("resumes", str(claims - 1)),
        ("model requests, counted by the server", f"{requests}; a run without kills makes {needed}"),
        ("model calls answered from the journal", str(answered["model", True])),
        ("tool calls made", str(answered["tool", False])),
        ("tool calls answered without a call", f"{answered['tool', True]}, from the journal, the bank or a person"),
        ("ledger", f"{kinds['pay']} payments, {kinds['dispute']} disputes"),
        ("in doubt, settled by asking the bank", f"{len(probes)}; {sum(probes)} of these had happened"),
        ("in doubt, settled by a person", "; ".join(settled)),
        ("checkpoints", str(sum(info.count for info in _threads(papers)))),
    ]


def _threads(papers: Papers) -> list[holdfast.types.ThreadInfo]:
    with holdfast.open(papers.folder / "agent.db") as hf:
        return list(hf.threads())


# -- checking ----------------------------------------------------------------------------------------------------------


def checks(play: Play, calm: Play, codes: list[int]) -> list[tuple[str, bool]]:
    """The checks, each with its outcome."""
    papers = play.papers
    ledger, budget = papers.lines("ledger.csv"), papers.lines("budget.csv")
    kills, settled = len(papers.lines("kills.jsonl")), papers.records("settled.jsonl")
    requests, needed = len(papers.lines("requests.jsonl")), len(calm.papers.lines("requests.jsonl"))
    turns = {record["turn"] for record in papers.records("requests.jsonl")}
    payments = sum(line.startswith("pay") for line in papers.expected)
    return [
        ("clerks were killed, and the work was completed", kills > 0 and play.completed),
        ("the ledger has every payment and every dispute exactly once", sorted(ledger) == sorted(papers.expected)),
        ("every payment was reserved exactly once", len(budget) == len(set(budget)) == payments),
        ("the model was asked every question", turns == set(range(1, needed + 1))),
        ("no kill cost more than one answer of the model", requests - needed <= kills),
        ("a call was in doubt, and a person settled it", any(record["happened"] for record in settled)),
        ("the final state is exactly that of the run that was not killed", play.state == calm.state),
        ("verify: every stored byte is what was written", play.hf.verify().ok),
        # A clerk that has just started does not handle SIGTERM yet, and dies of it.
        ("every clerk was killed, or stopped when the work was done", set(codes) <= {0, -signal.SIGTERM}),
    ]


def drill() -> bool:
    """Kill a clerk at every point of a smaller job. Returns whether the drill passed."""
    print("\nDrill: holdfast drill examples.clerk_drill:drill", flush=True)
    command = [sys.executable, "-m", "holdfast", "drill", "examples.clerk_drill:drill"]
    return subprocess.run(command, cwd=HERE.parent, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo.py", description="An agent that is killed again and again.")
    parser.add_argument("--seed", type=int, default=7, help="seed of the invoices and of the times of the kills")
    parser.add_argument("--invoices", type=int, default=20, help="number of invoices, from 4 to 40")
    parser.add_argument("--kills", type=int, default=MOST_KILLS, help="largest number of kills")
    parser.add_argument("--plain", action="store_true", help="no live display")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep all files in this folder")
    options = parser.parse_args()
    if not 4 <= options.invoices <= 40:
        parser.error("--invoices must be from 4 to 40")
    if options.keep is not None and options.keep.exists():
        parser.error(f"{options.keep} already exists")
    screen = Screen(plain=options.plain)
    with _folder(options.keep) as name, contextlib.ExitStack() as processes:
        papers, undisturbed = (Papers(Path(name) / kind, options.invoices, options.seed) for kind in ("killed", "calm"))
        print(f"An agent pays {options.invoices} invoices (seed {options.seed}). Its processes are killed on the way.")
        calm = Play(undisturbed, processes, clerks=1)
        play = Play(papers, processes, clerks=CLERKS)
        killer = Killer(play, options.seed, options.kills)
        deadline = time.monotonic() + DEADLINE
        with screen.live():
            while not (play.completed and calm.completed):
                if time.monotonic() > deadline:
                    raise SystemExit("the work was not done in time")
                killer.look()
                screen.show(len(papers.lines("ledger.csv")), options.invoices, killer)
                time.sleep(LOOK_EVERY)
            screen.show(len(papers.lines("ledger.csv")), options.invoices, killer)
        codes = play.send_home()
        screen.table("Timeline", timeline(papers))
        times = Counter(papers.lines("ledger.csv"))
        screen.table("Ledger", [(f"{count} x", line.replace(",", "  ")) for line, count in times.items()])
        screen.table("What it took", figures(papers, undisturbed))
        held = checks(play, calm, codes)
        screen.table("Checks", [("ok" if holds else "FAILED", what) for what, holds in held])
    every = drill() and all(holds for _, holds in held)
    if options.keep is not None:
        program = "holdfast" if shutil.which("holdfast") else f"{os.path.relpath(sys.executable)} -m holdfast"
        print(f"\nLook at it: {program} ui --store {options.keep / 'killed' / 'agent.db'}")
    print("\nAll checks held." if every else "\nA check FAILED.")
    return 0 if every else 1


def _folder(keep: Path | None) -> contextlib.AbstractContextManager[str]:
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="holdfast-demo-")
    return contextlib.nullcontext(str(keep))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End all remaining processes."""
    with process:
        process.kill()


if __name__ == "__main__":
    sys.exit(main())
