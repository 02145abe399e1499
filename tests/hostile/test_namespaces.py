"""A namespace cannot reach another: whatever one of two does, the other has what it had and sees nothing of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Holdfast, Retention
from holdfast.errors import HoldfastError, NotFound
from tests.covers import covers
from tests.selection import every_store
from tests.stores.postgres.server import address_at

pytestmark = every_store("each store keeps namespaces apart in its own way")

LARGE = random.Random(2).randbytes(20_000).hex()
NAMES = ("main", "fork", "job")


@pytest.fixture(params=["sqlite", "directory", "postgres"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Two namespaces of one store, with threads of the same names and the same large value in both."""
    urls = {"sqlite": str(tmp_path / "agent.db"), "directory": f"dir:{tmp_path}/agents"}
    url = address_at(tmp_path) if request.param == "postgres" else urls[request.param]
    with (
        holdfast.open(url, namespace="a", durability="off") as ours,
        holdfast.open(url, namespace="b", durability="off") as theirs,
    ):
        for hf in (ours, theirs):
            furnish(hf)
        yield ours, theirs


@holdfast.tool(effect="idempotent")
def act(word: str) -> str:
    return word


def furnish(hf: Holdfast) -> None:
    thread = hf.thread("main")
    for number in range(4):
        thread.save({"n": number, "large": LARGE, "messages": [f"message {i}" for i in range(50)]}, label=f"l{number}")
    thread.fork("fork").save({"large": LARGE})
    with hf.run("job", start={"n": 0}) as run:
        run.tool(act, {"word": "a"})
        run.wait("approve")


def seen(hf: Holdfast) -> Any:
    """Everything that the public interface shows of a namespace."""
    threads = {}
    for info in hf.threads():
        thread = hf.thread(info.name)
        history = [(found.seq, found.label, found.digest) for found in thread.history()]
        threads[info.name] = (info, thread.latest(), history, hf.effects(info.name))
    waiting = [(question.thread, question.name) for question in hf.waiting()]
    report = hf.verify()
    return threads, waiting, report.problems, report.threads, report.checkpoints


def _run(hf: Holdfast, name: str) -> None:
    with hf.run(name, start={"n": 0}) as run:
        run.tool(act, {"word": "b"})
        run.finish()


VERBS: dict[str, Callable[[Holdfast, str], Any]] = {
    "save": lambda hf, name: hf.thread(name).save({"mine": 1, "large": LARGE}),
    "fork": lambda hf, name: hf.thread(name).fork(f"{name}/x", at="@-1"),
    "rewind": lambda hf, name: hf.thread(name).rewind("1"),
    "delete": lambda hf, name: hf.thread(name).delete("1"),
    "drop": lambda hf, name: hf.thread(name).drop(),
    "prune": lambda hf, name: hf.thread(name).prune(Retention(keep_last=1, keep_labelled=False)),
    "answer": lambda hf, name: hf.answer(name, "approve", True),
    "cancel": lambda hf, name: hf.cancel(name, "enough"),
    "submit": lambda hf, name: hf.submit("handler", f"{name}/y", start={"n": 1}),
    "run": _run,
    "erase": lambda hf, name: hf.erase(name, forks=True),
    "optimize": lambda hf, _: hf.optimize(),
    "verify": lambda hf, _: hf.verify(),
}


@covers("C9")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=8)
@given(deeds=st.lists(st.tuples(st.sampled_from(sorted(VERBS)), st.sampled_from(NAMES)), min_size=1, max_size=12))
def test_whatever_one_does_the_other_has_what_it_had(
    pair: tuple[Holdfast, Holdfast], deeds: list[tuple[str, str]]
) -> None:
    ours, theirs = pair
    before = seen(theirs)
    for verb, name in deeds:
        with contextlib.suppress(HoldfastError):
            VERBS[verb](ours, name)
    ours.optimize()
    assert seen(theirs) == before


def test_after_everything_of_one_is_gone_the_other_has_all_of_its_own(pair: tuple[Holdfast, Holdfast]) -> None:
    ours, theirs = pair
    before = seen(theirs)
    for info in list(ours.threads()):
        ours.erase(info.name, forks=True)
    ours.optimize()
    assert list(ours.threads()) == []
    assert list(ours.waiting()) == []
    assert seen(theirs) == before


@covers("C9")
def test_no_id_of_one_is_found_in_the_other(pair: tuple[Holdfast, Holdfast]) -> None:
    ours, theirs = pair
    for found in theirs.thread("main").history():
        with pytest.raises(NotFound):
            ours.thread("main").load(found.id)


def test_a_thread_of_one_is_none_of_the_other(pair: tuple[Holdfast, Holdfast]) -> None:
    ours, theirs = pair
    theirs.thread("only theirs").save({"n": 1})
    assert ours.thread("only theirs").latest() is None
    assert "only theirs" not in [info.name for info in ours.threads()]
    for refused in (
        lambda: ours.thread("only theirs").load("1"),
        lambda: ours.effects("only theirs"),
        lambda: ours.answer("only theirs", "q", 1),
        lambda: ours.cancel("only theirs", "no"),
        lambda: ours.diff("only theirs", "main"),
    ):
        with pytest.raises(NotFound):
            refused()
