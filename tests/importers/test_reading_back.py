"""Stored states held against others: every change is seen, also of a type only, in any order of checkpoints."""

from __future__ import annotations

import copy
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged, Holdfast
from holdfast.importers.reading_back import ReadBack
from holdfast.stores.contract import CheckpointRow
from holdfast.threads.scan import checkpoint_at, thread_named
from tests.selection import tries
from tests.threads.wholes import opened


@pytest.fixture(params=["memory", "sqlite", "directory"])
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    with opened(request.param, tmp_path) as handle:
        yield handle


def history(hf: Holdfast, name: str = "t") -> tuple[int, list[CheckpointRow]]:
    """The number of a thread and its rows, oldest first."""
    store = hf.context.store
    thread = thread_named(store, name)
    assert thread is not None
    rows = [checkpoint_at(store, thread.position.thread, seq) for seq in range(1, thread.position.last + 1)]
    return thread.position.thread, [row for row in rows if row is not None]


def played(hf: Holdfast, seed: int) -> list[Any]:
    """Save what an agent saves: messages that are added, edited and summed up, large values, rewinds."""
    chance = random.Random(seed)
    thread = hf.thread("t")
    large = chance.randbytes(60_000).hex()
    state: dict[str, Any] = {"messages": [], "files": {}}
    saved: list[Any] = []
    made: list[holdfast.Checkpoint] = []
    for number in range(60):
        match chance.randrange(8):
            case 0:
                state["messages"] = [{"role": "system", "content": "in short"}, *state["messages"][-3:]]
            case 1:
                state["files"][f"f{number}"] = {"size": number, "lines": [chance.random() for _ in range(90)]}
            case 2:
                state["messages"].append({"role": "user", "content": [{"image": large}]})
            case 3 if len(saved) > 5:
                back = chance.randrange(len(saved))
                thread.rewind(made[back])
                state = copy.deepcopy(saved[back])
                continue
            case _:
                new = range(chance.randrange(1, 30))
                state["messages"] += [{"role": "user", "content": f"{number} {n} " * 40, "n": n} for n in new]
        made.append(thread.save(state))
        saved.append(copy.deepcopy(state))
    return saved


@pytest.mark.parametrize("seed", range(6))
def test_every_state_is_known_again_in_any_order(hf: Holdfast, seed: int) -> None:
    saved = played(hf, seed)
    number, rows = history(hf)
    assert len(rows) == len(saved)
    pairs = [*zip(rows, saved, strict=True)]
    for order in (pairs, pairs[::-1], random.Random(seed).sample(pairs, len(pairs))):
        reader = ReadBack(hf.context.store, number)
        for row, state in order:
            assert reader.holds(row, state)


def test_every_change_is_seen(hf: Holdfast) -> None:
    saved = played(hf, 1)
    number, rows = history(hf)
    reader = ReadBack(hf.context.store, number)
    for row, state in zip(rows, saved, strict=True):
        for path in ("messages", "files"):
            changed = copy.deepcopy(state)
            if not _touch(changed[path]):
                continue
            assert not reader.holds(row, changed)
        assert not reader.holds(row, {**state, "more": 1})
        assert not reader.holds(row, [state])
        assert reader.holds(row, state)


def _touch(value: Any) -> bool:
    """Change one number in a value to another type."""
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in members:
        if type(member) is int:
            value[key] = float(member)
            return True
        if isinstance(member, dict | list) and _touch(member):
            return True
    return False


@pytest.mark.parametrize(
    ("stored", "other"),
    [(1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ("x" * 50_000, "y" * 50_000)],
)
def test_what_is_equal_and_not_the_same_is_told_apart(hf: Holdfast, stored: Any, other: Any) -> None:
    hf.thread("t").save({"it": stored, "list": [stored] * 40})
    number, [row] = history(hf)
    assert ReadBack(hf.context.store, number).holds(row, {"it": stored, "list": [stored] * 40})
    assert not ReadBack(hf.context.store, number).holds(row, {"it": other, "list": [stored] * 40})
    assert not ReadBack(hf.context.store, number).holds(row, {"it": stored, "list": [*[stored] * 39, other]})


def test_what_cannot_be_read_is_never_taken_for_the_same(tmp_path: Path) -> None:
    """Every few bytes of a store, in turn, one is another."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        saved = played(hf, 2)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    data = path.read_bytes()
    hurt = tmp_path / "hurt.db"
    found = 0
    for place in range(4096 * 2 + 17, len(data), len(data) // tries(60, 20)):
        hurt.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        with suppress(holdfast.StoreError), holdfast.open(hurt, durability="off") as hf:
            number, rows = history(hf)
            reader = ReadBack(hf.context.store, number)
            for row in rows:
                try:
                    assert reader.holds(row, saved[row.seq - 1])
                except Damaged:
                    found += 1
    assert found


def test_a_large_value_is_read_and_not_only_named(tmp_path: Path) -> None:
    value = random.Random(3).randbytes(60_000)
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        hf.thread("t").save({"value": value})
    data = bytearray(path.read_bytes())
    data[data.index(value[30_000:30_032])] ^= 1
    path.write_bytes(data)
    with holdfast.open(path, durability="off") as hf:
        number, [row] = history(hf)
        with pytest.raises(Damaged):
            ReadBack(hf.context.store, number).holds(row, {"value": value})
