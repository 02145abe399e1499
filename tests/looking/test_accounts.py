"""What runs took: crashes, resumes, calls made and spared, doubts and how they ended, all from what runs recorded."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import GiveUp, Happened, Holdfast, NotDone, Run
from holdfast.looking.accounts import Account, Done, Settled, account, weight
from holdfast.threads.scan import thread_named


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Holdfast]:
    """A store that a child process sees, too."""
    with holdfast.open(tmp_path / "agent.db") as hf:
        yield hf


def killed(hf: Holdfast, agent: Callable[[Run], Any], name: str = "t") -> None:
    """Run an agent in a process that kills itself inside it."""
    child = os.fork()
    if not child:
        with hf.run(name, start={}) as run:
            agent(run)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_that_nothing_happened_to_took_its_calls(hf: Holdfast) -> None:
    @holdfast.tool(effect="read")
    def look() -> int:
        return 1

    @holdfast.tool(effect="irreversible")
    def pay() -> int:
        return 2

    with hf.run("t", start={}) as run:
        run.model(lambda: "a")
        run.tool(look)
        run.tool(pay)
        run.model(lambda: "b")
        run.finish()
    found = account(hf, ["t"])
    done = (
        Done(tool="look", kind="read", count=1, settled=0),
        Done(tool="pay", kind="irreversible", count=1, settled=0),
    )
    assert found == Account(threads=1, models=2, tools=2, done=done, entries=4)


def test_a_thread_without_a_run_took_nothing(hf: Holdfast) -> None:
    hf.thread("t").save({})
    assert account(hf, ["t"]) == Account(threads=1)
    assert account(hf, []) == Account()
    assert weight(hf, "t") == 0


def test_calls_that_were_answered_from_the_journal_are_counted_once_each_time(shared: Holdfast) -> None:
    @holdfast.tool(effect="idempotent")
    def reserve() -> int:
        return 1

    deaths = iter([True, True, False])

    def agent(run: Run, *, is_killed: bool) -> None:
        run.model(lambda: "a")
        run.model(lambda: "b")
        run.tool(reserve)
        if is_killed:
            run.model(die)
        run.finish(run.model(lambda: "c"))

    for is_killed in deaths:
        if is_killed:
            killed(shared, lambda run: agent(run, is_killed=True))
        else:
            with shared.run("t") as run:
                agent(run, is_killed=False)
    found = account(shared, ["t"])
    assert (found.crashed, found.resumed) == (2, 2)
    assert (found.models, found.tools) == (3, 1)
    # The second process was answered, and died before it wrote anything: only what the third heard is known.
    assert (found.models_known, found.tools_known) == (2, 1)


def test_answers_are_counted_where_only_a_checkpoint_comes_after_them(shared: Holdfast) -> None:
    def model() -> str:
        return "a"

    def first(run: Run) -> None:
        run.model(model)
        run.model(die)

    killed(shared, first)
    with shared.run("t") as run:
        run.model(model)
        run.save()
        store = shared.context.store
        row = thread_named(store, "t")
        assert row is not None
        kept = store.run(row.position.thread)
        assert kept is not None
        assert kept.replayed == (1, 0)
        run.model(lambda: "b")
        run.finish()
    assert account(shared, ["t"]).models_known == 1


def test_what_is_asked_twice_within_one_process_is_no_answer_from_the_journal(hf: Holdfast) -> None:
    with hf.run("t", start={}) as run:
        for _ in range(2):
            run.model(dict, key="k")
        run.finish()
    assert account(hf, ["t"]).models_known == 0


def test_a_run_whose_owner_is_gone_has_crashed_before_anybody_takes_it(shared: Holdfast) -> None:
    killed(shared, lambda run: run.model(die))
    assert account(shared, ["t"]).crashed == 1
    with shared.run("t") as run:
        run.finish()
    assert account(shared, ["t"]).crashed == 1


@pytest.mark.parametrize(
    ("outcome", "happened"),
    [(Happened("sent"), True), (NotDone(), False), (GiveUp(), False)],
    ids=["yes", "no", "give up"],
)
def test_what_a_person_settled_is_told(shared: Holdfast, outcome: Any, *, happened: bool) -> None:
    @holdfast.tool(effect="irreversible", in_doubt="ask")
    def post() -> str:
        die()
        return "sent"

    killed(shared, lambda run: run.tool(post))
    assert account(shared, ["t"]).in_doubt == 1
    [effect] = shared.effects("t")
    shared.settle("t", effect, outcome)
    found = account(shared, ["t"])
    assert found.settled == (Settled(tool="post", how="person", happened=happened, count=1),)
    assert found.in_doubt == 0
    assert found.tools == 0, "nobody recorded that it was made"


@pytest.mark.parametrize("happened", [True, False])
def test_what_a_probe_found_is_told(shared: Holdfast, *, happened: bool) -> None:
    deaths = [die]

    def probe() -> Any:
        return Happened("sent") if happened else NotDone()

    @holdfast.tool(effect="irreversible", probe=probe, probe_after=0.01)
    def post() -> str:
        for each in deaths:
            each()
        return "sent"

    killed(shared, lambda run: run.tool(post))
    deaths.clear()
    time.sleep(0.6)  # until its answer counts
    with shared.run("t") as run:
        run.finish(run.tool(post))
    found = account(shared, ["t"])
    assert Settled(tool="post", how="probe", happened=happened, count=1) in found.settled
    assert found.done == (Done(tool="post", kind="irreversible", count=1, settled=int(happened)),)
    assert found.tools == int(not happened)
    assert found.in_doubt == 0


def test_what_was_called_again_or_given_up_is_told(shared: Holdfast) -> None:
    deaths = [die]

    @holdfast.tool(effect="idempotent")
    def reserve() -> int:
        for each in deaths:
            each()
        return 1

    @holdfast.tool(effect="irreversible", in_doubt="give_up")
    def shout() -> int:
        for each in deaths:
            each()
        return 1

    killed(shared, lambda run: run.tool(reserve))
    killed(shared, lambda run: run.tool(shout), "u")
    deaths.clear()
    for name, tool in (("t", reserve), ("u", shout)):
        with shared.run(name) as run:
            run.tool(tool)
            run.finish()
    found = account(shared, ["t", "u"])
    assert found.settled == (
        Settled(tool="reserve", how="rerun", happened=True, count=1),
        Settled(tool="shout", how="give_up", happened=False, count=1),
    )
