"""Partial loads: what is left of a damaged state is as it was saved, the rest is marked where it stood."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Damaged, Unsupported
from holdfast.types import MissingValue
from tests.codec.strategies import identical
from tests.conftest import OpenHandle
from tests.selection import tries

SAVES = 8


def message(n: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {n} " * 20}


def saved(path: Path, *, edits: int = 0) -> dict[str, Any]:
    """A thread with everything a state is made of, stored by several saves; its last state."""
    chance = random.Random(7)
    state: dict[str, Any] = {
        "messages": [],
        "files": {},
        "inbox": (),
        "agents": [],
        "prompt": "You are careful. " * 1_200,
        "notes": {"plan": "think " * 400, "rest": "sleep " * 400},
        "scores": [],
        "draft": "",
        "audio": b"",
        "n": 0,
    }
    with holdfast.open(path, durability="off") as hf:
        thread = hf.thread("t")
        for n in range(SAVES):
            state["messages"] += [message(10 * n + i) for i in range(5)]
            state["files"].update({f"src/{n}/{i}.py": f"print({i}) " * 10 for i in range(12)})
            state["inbox"] += tuple(message(1000 * n + i) for i in range(12))
            state["agents"].append({"name": f"agent {n}", "log": [message(i) for i in range(40)]})
            state["scores"] += [1_000 * n + i for i in range(300)]
            state["draft"] += f"Chapter {n}. " * 400
            state["audio"] += bytes([n]) * 4_000
            state["n"] = n
            thread.save(state)
        for n in range(edits):
            state["messages"].insert(chance.randrange(len(state["messages"])), message(5000 + n))
            if n % 40 == 0:
                thread.save(state)
        thread.save(state)
    return state


def damage(path: Path, seqs: list[int]) -> None:
    """Flip a bit in the cells that these checkpoints brought."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for seq in seqs:
            found = connection.execute(
                "SELECT row_key, cells FROM checkpoint WHERE row_key & 4294967295 = ? AND cells IS NOT NULL", (seq,)
            ).fetchone()
            if found is not None:
                cells = bytearray(found[1])
                cells[len(cells) // 2] ^= 4
                connection.execute("UPDATE checkpoint SET cells = ? WHERE row_key = ?", (bytes(cells), found[0]))


def marks_in(whole: Any, left: Any) -> list[MissingValue]:
    """The marks in what is left; all else is what it was, where it was."""
    if isinstance(left, MissingValue):
        return [left]
    assert type(left) is type(whole)
    if isinstance(whole, dict):
        assert set(left) <= set(whole)
        return [mark for key in left for mark in marks_in(whole[key], left[key])]
    if isinstance(whole, list | tuple):
        assert len(left) == len(whole)
        return [mark for one, other in zip(whole, left, strict=True) for mark in marks_in(one, other)]
    assert identical(whole, left)
    return []


def entries_missing(whole: dict[str, Any], left: dict[str, Any]) -> int:
    return len(whole["files"]) - len(left["files"]) if isinstance(left["files"], dict) else 0


@pytest.mark.parametrize(("edits", "saves"), [(0, SAVES), (400, SAVES + 11)], ids=["spans", "tables"])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_left_is_what_was_saved_and_the_rest_is_marked(
    tmp_path: Path, edits: int, saves: int, seed: int
) -> None:
    path = tmp_path / "agent.db"
    whole = saved(path, edits=edits)
    chance = random.Random(seed)
    damage(path, chance.sample(range(1, saves + 1), chance.choice([1, 2, 4])))
    with holdfast.open(path, durability="off") as hf:
        thread = hf.thread("t")
        with pytest.raises(Damaged):
            thread.load("@-1")
        found = thread.load("@-1", partial=True)
        marks = marks_in(whole, found.state)
        assert found.lost
        assert len(found.lost) == len(marks) + entries_missing(whole, found.state)
        assert set(marks) <= set(found.lost)
        assert all(mark.why and mark.path.startswith("$.") for mark in found.lost)
        assert found.state["n"] == whole["n"]


def test_items_between_two_lost_tables_are_not_put_in_a_wrong_place(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    chance = random.Random(7)
    said = [message(n) for n in range(300)]
    with holdfast.open(path, durability="off") as hf:
        for n in range(61):
            hf.thread("t").save({"messages": said})
            for i in range(7):
                said[chance.randrange(300)] = message(1_000 + 10 * n + i)
        hf.thread("t").save({"messages": said})
    stored = path.read_bytes()
    for seed in range(tries(30, 10)):
        path.write_bytes(stored)
        damage(path, random.Random(seed).sample(range(1, 62), 4))
        with holdfast.open(path, durability="off") as hf:
            found = hf.thread("t").load("@-1", partial=True)
            assert len(marks_in({"messages": said}, found.state)) == len(found.lost)


def test_marks_stand_where_the_items_stood(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        for n in range(1, 5):
            hf.thread("t").save({"messages": [message(i) for i in range(10 * n)], "n": n})
    damage(path, [3])
    with holdfast.open(path, durability="off") as hf:
        found = hf.thread("t").load("@4", partial=True)
        assert [mark.path for mark in found.lost] == [f"$.messages[{i}]" for i in range(20, 30)]
        assert found.state["messages"][19:31:11] == [message(19), message(30)]
        assert found.state["messages"][20] == found.lost[0]
        assert (found.seq, found.step) == (4, 4)
        whole = hf.thread("t").load("@2", partial=True)
        assert whole.lost == ()
        assert whole.state == hf.thread("t").load("@2").state


def test_a_shared_value_is_marked(open_file: OpenHandle, tmp_path: Path) -> None:
    open_file().thread("t").save({"prompt": "x" * 20_000, "n": 1})
    with closing(sqlite3.connect(tmp_path / "agent.db")) as connection, connection:
        connection.execute("DELETE FROM piece")
    found = open_file().thread("t").load("@-1", partial=True)
    assert found.state["n"] == 1
    assert found.state["prompt"] == MissingValue("$.prompt", found.lost[0].why)


def test_nothing_left_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        hf.thread("t").save("a long text " * 100)
    damage(path, [1])
    with holdfast.open(path, durability="off") as hf:
        with pytest.raises(Damaged):
            hf.thread("t").load("@1", partial=True)
        hf.thread("t").save({"n": 2})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoint SET skeleton = x'00' WHERE row_key & 4294967295 = 2")
    with holdfast.open(path, durability="off") as hf, pytest.raises(Damaged):
        hf.thread("t").load("@2", partial=True)


class _Typed(msgspec.Struct):
    messages: list[Any]
    n: int


@pytest.mark.parametrize("type", [None, _Typed, dict, Any])
def test_a_mark_is_not_saved(type: Any) -> None:
    with holdfast.open("memory:") as hf:
        messages = [1, {"content": MissingValue("$.messages[7]", "gone")}]
        state = _Typed(messages, 1) if type is _Typed else {"messages": messages, "n": 1}
        with pytest.raises(Unsupported, match=r"\$\.messages\[1\]\.content"):
            hf.thread("t", type=type).save(state)
        assert hf.thread("t").latest() is None


def test_a_typed_thread_gives_what_is_left_plain(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        for n in (1, 2):
            hf.thread("t", type=_Typed).save(_Typed([message(i) for i in range(20 * n)], n))
    damage(path, [1])
    with holdfast.open(path, durability="off") as hf:
        found = hf.thread("t", type=_Typed).load("@2", partial=True)
        assert found.state["n"] == 2
        assert found.state["messages"][20:] == [message(i) for i in range(20, 40)]
        assert len(found.lost) == 20
