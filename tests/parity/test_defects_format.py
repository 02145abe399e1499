"""Defects G1 to G10, which Holdfast must not have: integrity and format."""

from __future__ import annotations

import copy
import math
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any

import pytest

import holdfast
from holdfast import (
    Cipher,
    Damaged,
    Holdfast,
    HoldfastError,
    Incompatible,
    InvalidArgument,
    NewerFormat,
    StoreError,
    Unsupported,
    Usage,
)
from tests.fixtures import write
from tests.parity.defects_scene import (
    content,
    damage_content,
    damage_record,
    database,
    everywhere,
    fill,
    latest,
    log_of,
    on_disk,
    opened,
    place,
    seqs,
    state_at,
    swap_members,
    with_a_fleet,
)

CIPHER = Cipher(keys={"k": b"k" * 32}, current="k")


@dataclass
class Newer:
    """A state as a newer program has it."""

    name: str
    note: str = ""


@dataclass
class Older:
    """The same as an older program knows it."""

    name: str


@with_a_fleet
def test_g1_every_listing_shows_what_was_saved(url: str) -> None:
    with opened(url) as hf:
        made = fill(hf.thread("t"), 3)
        made += [hf.thread("u").save({"n": 1}, label="one", tags=["x"])]
        require_listed(hf, made)
    if url != "memory:":
        with opened(url) as hf:
            require_listed(hf, made)


def require_listed(hf: Holdfast, made: list[holdfast.Checkpoint]) -> None:
    assert list(hf.thread("t").history()) == made[2::-1]
    assert [info.name for info in hf.threads()] == ["t", "u"]
    assert [(info.seq, info.count, info.head) for info in hf.threads()] == [(3, 3, made[2].id), (1, 1, made[3].id)]
    assert hf.thread("u").find(label="one") == hf.thread("u").find(tag="x") == hf.thread("u").head() == made[3]


@everywhere
def test_g2_every_float_comes_back_and_fits_its_digest(url: str) -> None:
    source = Random(7)
    sums = [0.0]
    for _ in range(600):
        sums.append(sums[-1] + round(source.random() / 100, 6))
    floats = [*sums, *(source.random() for _ in range(600)), *(source.uniform(-1e300, 1e300) for _ in range(200))]
    floats += [1e-320, 5e-324, 2**-1074, 1.7976931348623157e308, 0.1 + 0.2, -0.0, 1_700_000_000.123456]
    state = {"cost": floats}
    with opened(url) as hf:
        hf.thread("t").save(state, usage=Usage(cost=sums[-1]))
        if url == "memory:":
            require_floats(hf, floats)
    if url != "memory:":
        with opened(url) as hf:
            require_floats(hf, floats)


def require_floats(hf: Holdfast, floats: list[float]) -> None:
    found = latest(hf.thread("t"))
    assert [value.hex() for value in found.state["cost"]] == [value.hex() for value in floats]
    assert found.usage is not None
    assert found.usage.cost == floats[600]
    assert hf.verify().ok


@everywhere
def test_g3_what_can_be_saved_can_be_loaded(hf: Holdfast) -> None:
    thread = hf.thread("t")
    thread.save({"cost": math.nan, "limits": [math.inf, -math.inf]})
    found = latest(thread).state
    assert math.isnan(found["cost"])
    assert found["limits"] == [math.inf, -math.inf]
    for cost in (math.nan, math.inf, -1.0):
        with pytest.raises(InvalidArgument):
            thread.save({"n": 1}, usage={"cost": cost})
    with pytest.raises(Unsupported) as refused:
        thread.save({"args": [1, {"when": object()}]})
    assert refused.value.path == "$.args[1].when"
    assert thread.count() == 1


@on_disk
def test_g4_the_format_is_told_apart_from_the_state_and_older_ones_are_read(url: str, tmp_path: Path) -> None:
    state = {"_checksum": "mine", "_version": "0.0", "crc": "00000000", "format": 99, "t": "end"}
    with opened(url) as hf:
        hf.thread("t").save(state)
    with opened(url) as hf:
        assert latest(hf.thread("t")).state == state
    marker = place(url) / "holdfast.json"
    if database(url) is None:
        marker.write_text(marker.read_text().replace('"format":1', '"format":99'))
    else:
        with closing(sqlite3.connect(url)) as connection:
            connection.execute("PRAGMA user_version = 99")
    before = content(url)
    with pytest.raises(NewerFormat):
        opened(url)
    assert content(url) == before
    old = Path(write.__file__).parent / "format-1" / "directory" / "store"
    shutil.copytree(old, tmp_path / "old")
    with opened(f"dir:{tmp_path}/old", namespace=write.NAMESPACE) as hf:
        assert list(hf.threads())
        assert hf.verify().ok


@on_disk
def test_g5_files_that_are_swapped_or_put_back_are_noticed(url: str, tmp_path: Path) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 2)
        fill(hf.thread("u"), 3)
    old = tmp_path / "old"
    where = place(url)
    shutil.copytree(where, old) if where.is_dir() else shutil.copy(where, old)
    with opened(url) as hf:
        hf.thread("t").save(state_at(9))
        mark = hf.mark()
    if where.is_dir():
        log_of(url, "t").write_bytes((old / "default" / "threads" / "t" / "log.jsonl").read_bytes())
    else:
        shutil.copy(old, where)
    with opened(url) as hf:
        assert [problem.thread for problem in hf.verify(mark=mark).problems] == ["t"]
    swap_two(url)
    with opened(url) as hf:
        assert not hf.verify().ok
        with pytest.raises(HoldfastError):
            assert latest(hf.thread("u")).state == "anything"


def swap_two(url: str) -> None:
    """Two records, whole each, in each other's place."""
    if database(url) is None:
        first, second = log_of(url, "t"), log_of(url, "u")
        kept = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(kept)
        return
    with closing(sqlite3.connect(url)) as connection, connection:
        connection.execute(
            "UPDATE checkpoint SET (refs, skeleton, cells) ="
            " (SELECT refs, skeleton, cells FROM checkpoint c WHERE c.row_key = (1 << 32) + 1)"
            " WHERE row_key = (2 << 32) + 3"
        )


@everywhere
def test_g6_states_are_opaque_and_nothing_unknown_is_lost(url: str) -> None:
    with opened(url) as hf:
        plain = hf.thread("plain")
        plain.save({"role": "a role of next year", "unknown": {"field": [1]}, "known": 1})
        state = latest(plain).state
        state["known"] = 2
        plain.save(state)
        assert latest(plain).state == {"role": "a role of next year", "unknown": {"field": [1]}, "known": 2}

        hf.thread("typed", type=Newer, schema_version=2).save(Newer("ann", "keep me"))
        with pytest.raises(Incompatible):
            hf.thread("typed", type=Older, schema_version=1).latest()
        with pytest.raises(InvalidArgument):  # nor does a type drop what it does not know
            hf.thread("typed", type=Older).latest()

        @hf.migration(1, 2)
        def with_note(state: dict[str, Any]) -> dict[str, Any]:
            return {**state, "note": "none yet"}

        hf.thread("old", type=Older, schema_version=1).save(Older("bob"))
        assert latest(hf.thread("old", type=Newer, schema_version=2)).state == Newer("bob", "none yet")


@on_disk
@pytest.mark.parametrize("damage", [damage_record, damage_content])
def test_g7_errors_are_of_one_tree_and_damage_is_one_of_them(url: str, damage: Any) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 3)
    damage(url, 2)
    with opened(url) as hf:
        with pytest.raises(Damaged) as told:
            hf.thread("t").load("@2")
        assert isinstance(told.value, StoreError)
        report = hf.verify()
        assert not report.ok
        assert {problem.thread for problem in report.problems} == {"t"}
    errors = [value for value in vars(holdfast).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(errors) > 30
    assert all(issubclass(error, HoldfastError) for error in errors)


def test_g7_what_the_system_said_is_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError) as told:
        holdfast.open(f"dir:{tmp_path}/file/agents")
    assert isinstance(told.value.__cause__, OSError)


@everywhere
def test_g8_one_codec_whatever_the_store(url: str, tmp_path: Path) -> None:
    with opened(url) as hf:
        made = fill(hf.thread("t"), 3)
        for target in (f"dir:{tmp_path}/copy", str(tmp_path / "copy.db")):
            copied = hf.repair(target)
            assert (copied.ok, copied.redigested) == (True, 0)
            with opened(target) as other:
                assert list(other.thread("t").history()) == made[::-1]
                assert latest(other.thread("t")).state == state_at(3)
                assert other.verify().ok


@on_disk
def test_g9_what_is_encrypted_shows_no_label_and_can_be_put_in_no_other_place(url: str) -> None:
    with opened(url, cipher=CIPHER) as hf:
        for n in range(1, 4):
            hf.thread("t").save({"n": n, "text": f"diagnosis {n}"}, label=f"label {n}", metadata={"ward": "seven"})
    for word in (b"diagnosis", b"label 1", b"ward", b"seven"):
        assert word not in content(url)
    path = database(url)
    if path is None:
        swap_members(log_of(url, "t"), 2, 3, "meta", "refs", "skeleton")
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "UPDATE checkpoint SET (meta, refs, skeleton, cells) ="
                " (SELECT meta, refs, skeleton, cells FROM checkpoint c WHERE c.row_key = checkpoint.row_key - 1)"
                " WHERE row_key = (1 << 32) + 3"
            )
    with opened(url, cipher=CIPHER) as hf:
        with pytest.raises(Damaged):
            hf.thread("t").latest()
        assert not hf.verify().ok


@everywhere
def test_g10_the_callers_object_is_left_alone_and_comes_back_whole(hf: Holdfast) -> None:
    state = {"messages": [{"role": "user", "extra": {"field": (1, 2)}}], "own": {"deep": [b"x", None]}}
    before = copy.deepcopy(state)
    made = hf.thread("t").save(state, metadata={"own": "field"})
    assert state == before
    found = latest(hf.thread("t"))
    assert found.state == before
    found.state["messages"].append("changed by its reader")
    assert latest(hf.thread("t")).state == before
    assert made.created_at.tzinfo is UTC
    with pytest.raises(HoldfastError):
        hf.thread("t").load("@99")
    assert (seqs(hf.thread("t")), found.metadata) == ([1], {"own": "field"})
