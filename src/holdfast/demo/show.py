"""The show: runs the play with a live display, and ends with what happened and how to look at it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from holdfast.demo import your_turn
from holdfast.demo.account import checks, figures, timeline
from holdfast.demo.play import CLERK, CLERKS, DEADLINE, LOOK_EVERY, THREAD, Killer, Papers, Play
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.text import counted

DRILL = "holdfast.demo.clerk_drill:drill"

Rows = list[tuple[str, str]]


def run_demo(
    *,
    seed: int,
    invoices: int,
    kills: int,
    keep: Path | None,
    full: bool = False,
    plain: bool = False,
    as_json: bool = False,
    clerk: str = CLERK,
) -> bool:
    """Run the demo in the folder `keep`, by default a new one, and return whether all its checks held."""
    if keep is not None and keep.exists():
        raise InvalidArgument(f"{keep} exists; nothing was run. Name a new folder.")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-")) if keep is None else keep
    screen = _Screen(plain=plain, quiet=as_json)
    screen.line(f"An agent pays {invoices} invoices. Its processes are killed on the way, at random moments.")
    with contextlib.ExitStack() as processes:
        calm = Play(Papers(folder / "calm", invoices, seed), processes, clerks=1, clerk=clerk)
        play = Play(Papers(folder / "killed", invoices, seed), processes, clerks=CLERKS, clerk=clerk)
        killer = Killer(play, seed, kills)
        deadline = time.monotonic() + DEADLINE
        with screen.live():
            while not (play.completed and calm.completed):
                if time.monotonic() > deadline:
                    raise HoldfastError(f"the work was not done in {DEADLINE:.0f} seconds; its files are in {folder}")
                killer.look()
                screen.show(len(play.papers.lines("ledger.csv")), invoices, killer)
                time.sleep(LOOK_EVERY)
            screen.show(len(play.papers.lines("ledger.csv")), invoices, killer)
        codes = play.send_home()
        if full:
            screen.table("Timeline", timeline(play.papers))
            times = Counter(play.papers.lines("ledger.csv"))
            screen.table("Ledger", [(f"{count} x", line.replace(",", "  ")) for line, count in times.items()])
        facts = figures(play.papers, calm.papers)
        screen.table("What happened", facts)
        held = checks(play, calm, codes)
        screen.table("Checks", [("ok" if holds else "FAILED", what) for what, holds in held])
    all_held = all(holds for _, holds in held)
    if full:
        screen.line("\nDrill: the agent is killed at every point of a smaller job, and resumed each time.")
        drilled, report = _drill()
        screen.line(report)
        all_held = all_held and drilled
    store = folder / "killed" / "agent.db"
    # It dies, and leaves a run for the person who has watched.
    subprocess.run([sys.executable, "-m", your_turn.__name__, str(store.parent)], check=False)  # noqa: S603 - our own
    if as_json:
        found = {"ok": all_held, "store": str(store), "happened": dict(facts), "checks": dict(held)}
        sys.stdout.write(f"{json.dumps(found, indent=2)}\n")
    screen.line("\nAll checks held." if all_held else "\nA check FAILED.")
    for line in _next_steps(store, folder):
        screen.line(line)
    return all_held


def _drill() -> tuple[bool, str]:
    """Kill a clerk at every point of a smaller job. Returns whether the drill passed, and its report."""
    command = [sys.executable, "-m", "holdfast", "drill", DRILL]
    # stderr is the terminal's: the drill draws its progress there.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own program
    return done.returncode == 0, done.stdout.rstrip()


def _next_steps(store: Path, folder: Path) -> Iterator[str]:
    program = "holdfast" if shutil.which("holdfast") else f"{shlex.quote(sys.executable)} -m holdfast"
    has_page = all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn"))
    yield "\nLook at it:"
    yield f"  cd {shlex.quote(str(store.parent))}"
    if os.environ.get("HOLDFAST_STORE"):
        yield "  unset HOLDFAST_STORE"
    yield f"  {program} threads"
    yield f"  {program} log {THREAD}"
    yield f"  {program} effects {THREAD}"
    if not has_page:
        yield "  pip install 'holdfast[ui]'    (the web page needs it)"
    yield f"  {program} ui"
    yield "Your turn: one more process has died while it posted a letter, and its run waits for your decision."
    yield f"  {program} inbox"
    yield f"  cat {your_turn.LETTERS}    (it was posted)"
    yield f"  {program} settle {your_turn.THREAD} 1 --happened '\"posted\"' --by you"
    yield f"  {program} resume {your_turn.APP} {your_turn.THREAD}"
    yield "Kill the agent at every point of a smaller job:"
    yield f"  {program} drill {DRILL}"
    yield f"The files are in {folder}; delete the folder when you are done."


class _Screen:
    """A live display at a terminal, else lines; nothing if `quiet`."""

    def __init__(self, *, plain: bool, quiet: bool) -> None:
        self._is_live = not plain and not quiet and sys.stdout.isatty()
        self._quiet = quiet
        self._live: Any = None
        self._news = ""

    def line(self, text: str) -> None:
        if not self._quiet:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    @contextlib.contextmanager
    def live(self) -> Generator[None]:
        if not self._is_live:
            yield
            return
        from rich.live import Live  # noqa: PLC0415 - slow to import

        with Live(refresh_per_second=20) as self._live:
            yield

    def show(self, done: int, of: int, killer: Killer) -> None:
        if self._live is not None:
            from rich.progress_bar import ProgressBar  # noqa: PLC0415
            from rich.table import Table  # noqa: PLC0415

            grid = Table.grid(padding=(0, 2))
            grid.add_row("invoices", ProgressBar(total=of, completed=done, width=40), f"{done} of {of}")
            grid.add_row("kills", f"[red]{'✗ ' * killer.kills}[/]")
            grid.add_row("now", killer.news)
            self._live.update(grid)
        elif killer.news != self._news:
            self.line(f"  {done:2} of {of} invoices, {counted(killer.kills, 'kill')}: {killer.news}")
        self._news = killer.news

    def table(self, title: str, rows: Rows) -> None:
        width = max(len(name) for name, _ in rows)
        self.line(f"\n{title}")
        for name, value in rows:
            self.line(f"  {name:<{width}}  {value}")
