"""Trees, data, texts that can be shown, sizes, checks and following: the smaller parts of looking."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import InvalidArgument
from holdfast import text as printable
from holdfast.inspect import (
    Check,
    Follower,
    checkup,
    data_of,
    nearest_threads,
    node_of,
    nodes_in,
    stats,
    stored_bytes,
    threads,
    timeline,
    value_at,
)
from holdfast.types import MissingValue
from holdfast.urls import Durability
from tests.inspect.conftest import post, started
from tests.runs.conftest import World, write_results
from tests.selection import every_store
from tests.threads.wholes import address as address_of


@given(st.text(alphabet=st.characters()) | st.text(alphabet="\x1b\x9b\x07\r\n\t\u202e\u2066\u200b\ufeff\ud800a"))
def test_no_character_that_would_be_obeyed_is_shown(text: str) -> None:
    for shown in (printable.line(text), *printable.lines(text), printable.shortened(text, 5)):
        assert not any(ord(each) < 32 or 0x7F <= ord(each) < 0xA0 for each in shown)
        assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029")
        shown.encode()  # no half of a surrogate pair
    assert len(printable.shortened(text, 5)) <= 5
    assert set(printable.block(text)) & set("\x1b\u202e\r") == set()


def test_what_is_spelled_out() -> None:
    assert printable.line("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\\n"
    assert printable.lines("a\tb\r\nc\x07") == ["a    b", "c\\x07"]
    assert printable.block("a\tb\nc\x9b") == "a\tb\nc\\x9b"
    assert printable.line("Grüße, 日本") == "Grüße, 日本"


STATE = {"messages": [{"role": "user"}, "x" * 500], 7: (1, None), "seen": {"b", "a"}, "raw": b"\x00\xff", "n": 1.5}


def test_a_tree_is_unfolded_where_somebody_looks() -> None:
    root = node_of(STATE)
    assert (root.kind, root.count, root.at) == ("dict", 5, ())
    page = nodes_in(STATE)
    assert [(node.key, node.kind, node.count, node.text) for node in page.nodes] == [
        ("messages", "list", 2, ""),
        ("7", "tuple", 2, ""),
        ("seen", "set", 2, ""),
        ("raw", "bytes", 2, "00 ff"),
        ("n", "number", 0, "1.5"),
    ]
    inside = nodes_in(STATE, (0,), start=1, limit=1)
    assert (inside.total, inside.nodes[0].at, inside.nodes[0].count, inside.nodes[0].is_cut) == (2, (0, 1), 500, True)
    assert value_at(STATE, (0, 1)) == "x" * 500
    assert [node.text for node in nodes_in(STATE, (2,)).nodes] == ["a", "b"]
    assert nodes_in(STATE, (3,)).total == 0
    for odd in ((9,), (0, 0, 0, 0), (-1,), (3, 0)):
        with pytest.raises(InvalidArgument):
            value_at(STATE, odd)


def test_an_int_of_more_digits_than_python_converts() -> None:
    large = 16**5000
    value = {"n": large, large: -large, "set": {large, 1}, "pair": {(large, 1): 2}}
    text = f"0x1{'0' * 5000}"
    assert json.loads(json.dumps(data_of(value))) == {
        "n": text,
        text: f"-{text}",
        "set": [text, 1],
        "pair": {"<tuple>": 2},
    }
    assert data_of(10**4000) == 10**4000
    node = node_of(large)
    assert (node.kind, node.text, node.is_cut) == ("number", text[:200], True)


def test_every_value_can_be_written_as_json() -> None:
    id = uuid.UUID(int=7)
    value = {
        "n": [1, 2.5, True, None, 10**40, math.nan, -math.inf],
        7: b"\x00",
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "took": timedelta(seconds=90),
        "money": Decimal("1.10"),
        "id": id,
        "set": {3, 1},
        "half": "\ud800",
        "lost": MissingValue("$.x", "gone"),
    }
    assert json.loads(json.dumps(data_of(value))) == {
        "n": [1, 2.5, True, None, 10**40, "nan", "-inf"],
        "7": {"$bytes": "AA=="},
        "when": "2026-01-02T00:00:00+00:00",
        "day": "2026-01-02",
        "took": 90.0,
        "money": "1.10",
        "id": str(id),
        "set": [1, 3],
        "half": "\\ud800",
        "lost": {"$lost": "gone"},
    }


def test_stats_of_a_store_and_of_a_thread(world: World) -> None:
    hf = world.open()
    thread = hf.thread("a")
    for number in range(10):
        thread.save({"messages": ["x" * 100] * number})
    hf.thread("b").save({"n": 1}, status="completed")
    told: list[int] = []
    found = stats(hf, progress=told.append)
    assert (found.threads, found.checkpoints, told) == (2, 11, [1, 2])
    sizes = [each.size for name in "ab" for each in hf.thread(name).history()]
    assert found.copies == sum(sizes)
    assert found.newest == sum(info.size for info in hf.threads())
    assert found.statuses == {"running": 1, "completed": 1}
    assert sum(day.checkpoints for day in found.days) == 11
    assert sum(day.bytes for day in found.days) == found.copies
    alone = stats(hf, "b")
    assert (alone.threads, alone.checkpoints, alone.stored, alone.saved) == (1, 1, None, None)


def test_what_a_store_takes_on_disk(tmp_path: Path) -> None:
    for address in (str(tmp_path / "a.db"), f"dir:{tmp_path / 'folder'}"):
        with holdfast.open(address, durability="off") as hf:
            hf.thread("a").save({"n": 1})
            assert (stored_bytes(hf) or 0) > 100
    with holdfast.open("memory:") as hf:
        assert stored_bytes(hf) is None


def test_a_checkup_of_a_sound_store(world: World) -> None:
    hf = world.open()
    hf.thread("a").save({"n": 1})
    found = {check.name: check for check in checkup(hf)}
    assert {"read", "write", "encryption", "clock", "versions"} <= set(found)
    assert found["read"].ok
    assert found["write"].ok
    assert found["encryption"].what == "off"
    assert "Python 3" in found["versions"].what
    assert hf.verify().ok


def test_the_settings_are_looked_at(tmp_path: Path) -> None:
    """As they are in the database: a handle that does not flush is told of."""
    found: dict[str, dict[str, Check]] = {}
    for kind in ("sqlite", "directory", "postgres", "memory"):
        for durability in get_args(Durability)[::2]:
            with holdfast.open(address_of(kind, tmp_path), durability=durability) as hf:
                checks = {check.name: check for check in checkup(hf)}
                if "settings" in checks:
                    found.setdefault(kind, {})[durability] = checks["settings"]
    assert set(found) == {"sqlite", "directory", "postgres"}
    assert (found["sqlite"]["full"].ok, found["sqlite"]["off"].ok) == (True, False)
    said = "journal_mode wal, synchronous FULL, secure_delete 1, "
    assert found["sqlite"]["full"].what.startswith(said)
    assert "synchronous OFF" in found["sqlite"]["off"].what
    assert (found["directory"]["full"].ok, found["directory"]["off"].ok) == (True, False)
    server = found["postgres"]["full"]
    assert server.what.startswith("fsync ")
    assert server.ok == ("fsync on, full_page_writes on" in server.what)


def test_a_checkup_finds_a_clock_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("a").save({"n": 1})
        monkeypatch.setattr("time.time", lambda: 1_000_000.0)
        clock = next(check for check in checkup(hf) if check.name == "clock")
    assert not clock.ok
    assert "in the future" in clock.what


@every_store("some stores announce what is new, others are asked")
def test_following_tells_what_is_new(world: World) -> None:
    hf = world.open()
    with world.running("live", start={"messages": []}) as run:
        follower = Follower(hf, "live")
        assert [event.status for event in follower.look()] == ["running"]
        run.model(lambda: "hello")
        write_results(run)
        assert [(event.call.kind, event.call.status) for event in follower.look() if event.call] == [("model", "done")]
        run.save()
        assert [event.checkpoint.step for event in follower.look() if event.checkpoint] == [1]
        assert list(follower.look()) == []
    assert [event.status for event in follower.look()] == ["idle"]


def test_following_hears_how_a_call_was_decided(world: World) -> None:
    started(world)
    hf = world.open()
    follower = Follower(hf, "shop")
    assert [event.status for event in follower.look()] == ["interrupted"]
    number = hf.effects("shop")[-1].number
    hf.settle("shop", number, holdfast.Happened("posted"))
    with hf.run("shop") as run:
        assert [event.status for event in follower.look()] == ["running"]
        for _ in run.steps():
            run.tool(post, {"letter": "Dear Sir"}, key="p")
            run.finish("by hand")
    events = list(follower.look())
    assert events[-1].status == "completed"
    assert any(event.checkpoint is not None for event in events)


def test_threads_that_are_like_a_name(world: World) -> None:
    hf = world.open()
    for name in ("invoice-41", "invoice-42", "letter"):
        hf.thread(name).save({})
    assert nearest_threads(hf, "invioce-42", most=1) == ["invoice-42"]
    assert nearest_threads(hf, "lettre") == ["letter"]
    assert nearest_threads(hf, "zzz") == []


def test_an_encrypted_store_is_looked_at_in_clear(tmp_path: Path) -> None:
    cipher = holdfast.Cipher(keys={"k": b"1" * 32}, current="k")
    with holdfast.open(tmp_path / "a.db", durability="off", cipher=cipher) as hf:
        with hf.run("asks", start={"messages": [{"role": "user", "content": "secret"}]}) as run:
            run.wait("approve", 3)
        with hf.run("asks") as run:
            run.wait("approve", 3)
        [line] = threads(hf).threads
        assert (line.status, line.waits_for, line.resumed, line.crashed) == ("waiting", "approve", 1, 0)
        [step] = timeline(hf, "asks").steps
        assert [each.after for each in step.resumptions] == ["waiting"]
        assert next(check for check in checkup(hf) if check.name == "encryption").what == "on"
