"""Saves to several threads together: all of them, or none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import ANY, NEW, AppendTo, Conflict, Holdfast, InvalidArgument, LeaseHeld, SaveTo, Unsupported
from holdfast.errors import AlreadyExists, EffectsAhead, TooLarge
from holdfast.runs.tools import tool
from tests.selection import every_store
from tests.stores.postgres.server import address_at
from tests.stores.sqlite.conftest import finished, forked
from tests.waiting import DEADLINE


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "threads.db", durability="off") as handle:
        yield handle


class Stop(Exception):
    """Ends the block of a run."""


def state_of(hf: Holdfast, name: str) -> Any:
    head = hf.thread(name).latest()
    return None if head is None else head.state


def states(hf: Holdfast) -> dict[str, Any]:
    return {info.name: state_of(hf, info.name) for info in hf.threads()}


def test_appends_and_saves_in_one_commit(hf: Holdfast) -> None:
    made = hf.save_together(
        [
            AppendTo("session", "events", [1], metadata={"updated": 7}),
            SaveTo("user", {"name": "Ada"}, label="first", expect=NEW),
            SaveTo(hf.thread("app"), {"version": 1}),
        ]
    )
    assert [(each.thread, each.step) for each in made] == [("session", 1), ("user", 1), ("app", 1)]
    assert states(hf) == {"session": {"events": [1]}, "user": {"name": "Ada"}, "app": {"version": 1}}
    assert made[0].metadata == {"updated": 7}
    user = hf.thread("user").find(label="first")
    assert user is not None
    assert user.id == made[1].id
    hf.save_together([AppendTo("session", "events", [2], expect=made[0]), SaveTo("user", {"name": "Eve"}, expect=user)])
    assert states(hf) == {"session": {"events": [1, 2]}, "user": {"name": "Eve"}, "app": {"version": 1}}
    assert hf.verify().problems == ()


def test_thread_objects_remember_the_heads(hf: Holdfast) -> None:
    old, new = hf.thread("old"), hf.thread("new")
    old.save({"n": 0})
    hf.save_together([SaveTo(old, {"n": 1}), SaveTo(new, {"n": 1})])
    hf.save_together([SaveTo(new, {"n": 2}), SaveTo(old, {"n": 2})])
    assert (old.save({"n": 3}).step, new.save({"n": 3}).step) == (4, 3)
    other = hf.thread("new")
    other.latest()
    other.save({"n": 4})
    with pytest.raises(Conflict, match=r"'old', 'new' cannot be saved together.* nothing was saved"):
        hf.save_together([SaveTo(old, {"n": 9}), SaveTo(new, {"n": 9})])
    assert states(hf) == {"old": {"n": 3}, "new": {"n": 4}}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_that_does_not_match_keeps_all_out(hf: Holdfast, place: int) -> None:
    first = {name: hf.thread(name).save({"events": [0]}) for name in "abc"}
    hf.thread("abc"[place]).append("events", [1])
    before = states(hf)
    changes: list[SaveTo | AppendTo] = [
        SaveTo("a", {"events": []}, expect=first["a"]),
        AppendTo("b", "events", [9], expect=first["b"].id),
        SaveTo("c", {"events": [9]}, expect=first["c"]),
    ]
    with pytest.raises(Conflict):
        hf.save_together(changes)
    assert states(hf) == before
    with pytest.raises(AlreadyExists):
        hf.save_together([SaveTo("new", {}), SaveTo("a", {}, expect=NEW)])
    assert states(hf) == before


def test_wrong_arguments_save_nothing(hf: Holdfast, tmp_path: Path) -> None:
    hf.thread("a").save({"text": "no list"})
    before = states(hf)
    with holdfast.open(tmp_path / "threads.db", durability="off", max_state_bytes=1000) as small:
        with pytest.raises(TooLarge):
            small.save_together([SaveTo("b", {}), SaveTo("a", {"x": "y" * 2000})])
        wrong: Any
        for wrong in (
            [],
            ["a"],
            [SaveTo("", {})],
            [SaveTo(7, {})],  # type: ignore[arg-type]
            [SaveTo(small.thread("a"), {})],
            [SaveTo("b", {}), AppendTo("b", "events", [1])],
            [SaveTo("b", {}), AppendTo("a", "text", [1])],
            [SaveTo("b", {}), AppendTo("a", "", [1])],
            [SaveTo("b", {}), SaveTo("a", {}, trigger="step")],
        ):
            with pytest.raises(InvalidArgument):
                hf.save_together(wrong)
    with pytest.raises(Unsupported):
        hf.save_together([SaveTo("b", {}), SaveTo("a", {"x": object()})])
    assert states(hf) == before


def test_a_unique_append_marks_the_whole_call(hf: Holdfast) -> None:
    for number in range(2):
        made = hf.save_together([SaveTo("user", {"n": number}, expect=ANY), AppendTo("a", "events", [1], unique="x")])
        assert len(made) == (2 if number == 0 else 0)
    assert states(hf) == {"user": {"n": 0}, "a": {"events": [1]}}


def test_a_call_that_saves_nothing_does_not_change_the_head_that_a_thread_expects(hf: Holdfast) -> None:
    thread, other = hf.thread("a"), hf.thread("a")
    thread.save({"events": [], "by": "thread"})
    hf.thread("b").append("events", [1], unique="x")
    other.save({"events": [], "by": "other"})
    assert hf.save_together([AppendTo(thread, "events", [1]), AppendTo("b", "events", [1], unique="x")]) == []
    with pytest.raises(Conflict):
        thread.save({"events": [], "by": "thread"})
    assert state_of(hf, "a") == {"events": [], "by": "other"}


def test_a_run_in_one_of_them(hf: Holdfast) -> None:
    @tool(effect="irreversible")
    def pay() -> str:
        return "paid"

    with suppress(Stop), hf.run("busy", start={}, tools=[pay]) as run:
        with pytest.raises(LeaseHeld, match="'free', 'busy' were not saved"):
            hf.save_together([SaveTo("free", {}), SaveTo("busy", {}, expect=ANY)])
        run.tool(pay)
        raise Stop
    changes = [SaveTo("free", {"n": 1}), SaveTo("busy", {"n": 1}, expect=ANY)]
    with pytest.raises(EffectsAhead):
        hf.save_together(changes)
    assert state_of(hf, "free") is None
    hf.save_together([changes[0], SaveTo("busy", {"n": 1}, expect=ANY, past_effects=True)])
    assert states(hf) == {"busy": {"n": 1}, "free": {"n": 1}}


def test_a_completed_run_in_one_of_them_and_an_unfinished_one_in_another(hf: Holdfast) -> None:
    @tool(effect="irreversible")
    def pay() -> str:
        return "paid"

    with hf.run("over", start={}, tools=[pay]) as run:
        run.tool(pay)
        run.finish()
    with suppress(Stop), hf.run("open", start={}) as run:
        raise Stop
    hf.save_together([SaveTo(name, {"n": 1}, expect=ANY) for name in ("open", "over")])
    assert states(hf) == {"open": {"n": 1}, "over": {"n": 1}}


def test_types_of_states(hf: Holdfast) -> None:
    class User(msgspec.Struct):
        name: str

    users = hf.thread("user", User)
    hf.save_together([SaveTo(users, User("Ada")), SaveTo("plain", {})])
    head = users.latest()
    assert head is not None
    assert head.state == User("Ada")


def test_writers_in_opposite_order(tmp_path: Path) -> None:
    """No handle waits for another forever, and no pair is torn. Appends follow what others have appended."""
    start = threading.Barrier(4, timeout=DEADLINE)

    def write(word: str, names: list[str], own: Holdfast) -> None:
        start.wait()
        for number in range(25):
            own.save_together([AppendTo(name, "events", [f"{word}{number}"]) for name in names])

    with holdfast.open(tmp_path / "t.db", durability="off") as one, holdfast.open(tmp_path / "t.db") as two:
        works = [("a", "xy", one), ("b", "yx", one), ("c", "xy", two), ("d", "yx", two)]
        threads = [threading.Thread(target=write, args=(word, list(names), own)) for word, names, own in works]
        for each in threads:
            each.start()
        for each in threads:
            each.join(DEADLINE)
        assert not any(each.is_alive() for each in threads)
        found = states(one)
        assert found["x"] == found["y"]
        assert sorted(found["x"]["events"]) == sorted(f"{word}{n}" for word in "abcd" for n in range(25))


@every_store("SQLite locks its file, PostgreSQL rows")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_processes_in_opposite_order(tmp_path: Path, kind: str) -> None:
    """Each sets both threads to its own value, and expects what it read. PostgreSQL locks rows: no deadlock, either."""
    url = address_at(tmp_path) if kind == "postgres" else str(tmp_path / "t.db")

    def write(word: str, names: list[str]) -> None:
        with holdfast.open(url) as hf:
            for number in range(20):
                while True:
                    try:
                        threads = [hf.thread(name) for name in names]
                        for thread in threads:
                            thread.latest()
                        hf.save_together([SaveTo(thread, {"by": f"{word}{number}"}) for thread in threads])
                        break
                    except Conflict:
                        continue

    for pid in [forked(lambda: write("a", ["x", "y"])), forked(lambda: write("b", ["y", "x"]))]:
        finished(pid)
    with holdfast.open(url) as hf:
        x, y = ([each.id for each in hf.thread(name).history()] for name in "xy")
        assert len(x) == len(y) == 40
        both = [[hf.thread(name).load(id_).state for id_ in ids] for name, ids in (("x", x), ("y", y))]
        assert both[0] == both[1]
        assert hf.verify().problems == ()


def test_stores_with_a_log_per_thread_refuse(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path / 'store'}", durability="off") as hf:
        hf.save_together([AppendTo("a", "events", [1])])
        with pytest.raises(InvalidArgument, match=r"nothing was saved\. Use a SQLite"):
            hf.save_together([AppendTo("a", "events", [2]), SaveTo("b", {})])
        assert states(hf) == {"a": {"events": [1]}}


def test_async(hf: Holdfast) -> None:
    async def main() -> None:
        await hf.aio.save_together([AppendTo("a", "events", [1]), SaveTo("b", {"n": 1})])
        with pytest.raises(Conflict):
            await hf.aio.save_together([AppendTo("a", "events", [2]), SaveTo("b", {"n": 2}, expect=NEW)])

    asyncio.run(main())
    assert states(hf) == {"a": {"events": [1]}, "b": {"n": 1}}
