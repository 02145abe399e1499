"""What a child of the tests of acts runs: payments whose identity is the invoice, each time in other words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

import holdfast
from holdfast import Happened, Holdfast, NotDone
from holdfast.stores.log import disk
from holdfast.urls import open_store
from tests.runs.sweep_faults import Countdown, counted, hook_disk

Layer = Literal["verbs", "disk", "files"]
ROUNDS = 10  # more settlements than any job needs


class Task(msgspec.Struct):
    """What a child is told: where the ledger and the store are, and where to die."""

    folder: str
    url: str
    namespace: str
    layer: Layer
    at: int = 0
    threads: tuple[str, ...] = ()
    invoices: tuple[str, ...] = ("A-17",)
    in_doubt: Literal["ask", "rerun"] = "ask"


class Ledger:
    """What was paid, with which idempotency key, in a file that Holdfast knows nothing of."""

    def __init__(self, path: Path, tick: Callable[[str], None]) -> None:
        self._path = path
        self._tick = tick

    def add(self, invoice: str, key: str) -> None:
        self._tick("before ledger")
        book = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(book, f"{invoice} {key}\n".encode())
        finally:
            os.close(book)
        self._tick("after ledger")

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []

    def invoices(self) -> list[str]:
        return [line.split()[0] for line in self.lines()]


def opened(task: Task, countdown: Countdown) -> tuple[Holdfast, Ledger]:
    ledger = Ledger(Path(task.folder) / "ledger", countdown.tick)

    @holdfast.tool(effect="irreversible", name="pay", identity=("invoice",), in_doubt=task.in_doubt)
    def pay(invoice: str, note: str, idempotency_key: str) -> str:
        ledger.add(invoice, idempotency_key)
        return f"paid {invoice}"

    if task.layer == "disk":
        hook_disk(countdown)
    elif task.layer == "files":
        _hook_files(countdown)
    store = open_store(task.url, namespace=task.namespace, durability="full")
    return Holdfast(counted(store, countdown) if task.layer == "verbs" else store, tools=[pay]), ledger


def _hook_files(countdown: Countdown) -> None:
    """Tick around everything that a directory store writes, renames or syncs."""
    for module, name in ((disk, "write_all"), (disk, "replace_file"), (disk, "sync_data"), (os, "rename")):
        setattr(module, name, _ticking(countdown, name, getattr(module, name)))


def _ticking(countdown: Countdown, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        countdown.tick(f"before {name}")
        answer = function(*args, **kwargs)
        countdown.tick(f"after {name}")
        return answer

    return run


def pay_all(hf: Holdfast, ledger: Ledger, task: Task, thread: str) -> None:
    """Pay every invoice on a thread. What is in doubt is settled by a look into the ledger."""
    for _ in range(ROUNDS):
        with hf.run(thread, start={"n": 0}) as run:
            for step in run.steps():
                if step > len(task.invoices):
                    run.finish(None)
                    break
                invoice = task.invoices[step - 1]
                note = f"{thread} of {os.getpid()} at {time.time()}"  # never the same words
                assert run.tool("pay", {"invoice": invoice, "note": note}) == f"paid {invoice}"
        if run.status == "completed":
            return
        for effect in hf.effects(thread):
            if effect.status in ("in_doubt", "asked"):
                invoice = effect.arguments["invoice"]
                is_paid = invoice in ledger.invoices()
                hf.settle(thread, effect, Happened(f"paid {invoice}") if is_paid else NotDone())
    raise AssertionError("the run asks without end")


def work(path: Path, pipe: int) -> None:
    """Pay on several threads, then once more after a rewind, and die at the place that the task names."""
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    hf, ledger = opened(task, Countdown(task.at, pipe))
    for thread in task.threads:
        pay_all(hf, ledger, task, thread)
    hf.thread(task.threads[0]).rewind("@0", past_effects=True)
    pay_all(hf, ledger, task, task.threads[0])
    hf.close()
    os.write(pipe, b"ended\n")


def finish(path: Path, pipe: int) -> None:
    """As another process: pay on a new thread, then on those of the dead one, and check."""
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    hf, ledger = opened(task, Countdown(0, pipe))
    for thread in ("another", *task.threads):
        pay_all(hf, ledger, task, thread)
    # A rerun is the same payment if it has the same key.
    paid = ledger.lines() if task.in_doubt == "ask" else set(ledger.lines())
    assert sorted(line.split()[0] for line in paid) == sorted(task.invoices), paid
    report = hf.verify()
    assert report.ok, report.problems
    assert len(list(hf.acts("pay"))) == len(task.invoices)
    hf.close()
    os.write(pipe, b"finished\n")


def race(path: Path, pipe: int) -> None:
    """Pay all invoices on one thread of its own, while other processes do the same."""
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    hf, ledger = opened(task, Countdown(0, pipe))
    pay_all(hf, ledger, task, task.threads[0])
    hf.close()
    os.write(pipe, b"ended\n")
