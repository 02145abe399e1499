"""Ctrl-C and SIGTERM at every line of a save, and of the entry, the calls and the end of a run.

After each interrupt: the store is whole, the run is free, no renewal goes on, the next call works, and what was paid
was paid once.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import holdfast
from holdfast import Happened, Holdfast, NotDone
from tests.crash.ledger import note
from tests.interruption import Interrupt
from tests.selection import IN_FULL
from tests.stores.postgres.server import reused_address_at

# Python reports and ignores an interrupt in the callback of a weak reference.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STORES = ("sqlite", "directory", "postgres")
SHARE = {"save": 41, "run": 397, "long run": 797}  # `make test` interrupts at every so many-th line


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """SIGTERM raises SystemExit, as in a program that is deployed."""
    before = signal.signal(signal.SIGTERM, terminate), signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before[0])
    signal.signal(signal.SIGINT, before[1])


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind: str = request.param
    if kind == "postgres":
        return reused_address_at(tmp_path)
    return str(tmp_path / "a.db") if kind == "sqlite" else f"dir:{tmp_path / 'a'}"


def kind_of(url: str) -> str:
    """The kind of store, for the ledger."""
    scheme, is_url, _ = url.partition(":")
    return {"dir": "directory", "postgresql": "postgres"}[scheme] if is_url else "sqlite"


class Payments:
    """The world outside: what was paid, by invoice."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def pay(self, invoice: str) -> str:
        self.paid[invoice] += 1
        return f"receipt of {invoice}"

    def ask(self, invoice: str) -> str:
        self.asked[invoice] += 1
        return f"pay {invoice}"


def agent(hf: Holdfast, world: Payments, name: str) -> None:
    """A run of two steps: a model call, a payment, a checkpoint, and a result."""
    with hf.run(name, start={"log": []}) as run:
        for step in run.steps():
            if step > 1:
                run.finish(run.state["log"])
            else:
                run.state["log"].append(run.model(world.ask, name))
                run.state["log"].append(run.tool(world.pay, {"invoice": name}))


def complete(hf: Holdfast, world: Payments, name: str) -> None:
    """Resume until the run is completed, and settle what is in doubt as a person does who looks at the world."""
    for _ in range(3):
        agent(hf, world, name)
        info = hf.run_info(name)
        if info is not None and info.status == "completed":
            return
        for effect in hf.effects(name):
            if effect.status == "in_doubt":
                hf.settle(name, effect, Happened(f"receipt of {name}") if world.paid[name] else NotDone())
    raise AssertionError(f"{name} does not complete")


def terminate(number: int, _: FrameType | None) -> None:
    """A handler of SIGTERM as programs have it."""
    sys.exit(128 + number)


def renewals() -> list[str]:
    """The threads of this process that renew leases."""
    return [thread.name for thread in threading.enumerate() if thread.name == "holdfast-lease"]


def points(what: str, case: Callable[[Interrupt, int], None], number: signal.Signals) -> int:
    """Try a case with an interrupt at every line, until it ends before the interrupt. The number of interrupts."""
    at = count = 0
    while True:
        at += 1 if IN_FULL else SHARE[what]
        interrupt = Interrupt(at, number=number)
        try:
            case(interrupt, at)
        except BaseException as error:
            raise AssertionError(f"interrupted at event {at}, {interrupt.place}") from error
        if not interrupt.came:
            assert count > 10, "hardly an interrupt was made"
            return count
        count += 1
        assert not renewals(), interrupt.place


@pytest.mark.parametrize("number", SIGNALS, ids=lambda each: each.name)
def test_run(url: str, number: signal.Signals) -> None:
    world = Payments()
    with holdfast.open(url, durability="off", namespace=f"run-{number}") as hf:

        def case(interrupt: Interrupt, at: int) -> None:
            name = f"invoice-{at}."
            with interrupt.strike():
                agent(hf, world, name)
            assert not renewals(), "the lease is not renewed after the block"
            complete(hf, world, name)
            assert world.paid[name] == 1
            assert world.asked[name] <= 2

        count = points("run" if url.endswith(".db") else "long run", case, number)
        assert_whole(hf)
    note("interrupt in a run", kind_of(url), **{number.name: count})


@pytest.mark.parametrize("number", SIGNALS, ids=lambda each: each.name)
def test_save(url: str, number: signal.Signals) -> None:
    with holdfast.open(url, durability="off", namespace=f"save-{number}") as hf:

        def case(interrupt: Interrupt, at: int) -> None:
            thread = hf.thread(f"t{at}")
            thread.save({"messages": [{"text": "first"}]})
            with interrupt.strike():
                thread.save({"messages": [{"text": "first"}, {"text": "second"}]})
            latest = thread.latest()
            assert latest is not None
            assert [each["text"] for each in latest.state["messages"]] in (["first"], ["first", "second"])
            thread.save({"messages": [*latest.state["messages"], {"text": "third"}]})
            newest = hf.thread(f"t{at}").latest()
            assert newest is not None
            assert newest.state["messages"][-1] == {"text": "third"}

        count = points("save", case, number)
        assert_whole(hf)
    note("interrupt in a save", kind_of(url), **{number.name: count})


def assert_whole(hf: Holdfast) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is terminate
    assert list(hf.context.store.check()) == []
    assert hf.verify().ok
