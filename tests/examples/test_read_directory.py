"""The reader in plain Python: what the documented format promises is enough to read a thread without Holdfast."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.covers import covers

READER = Path(__file__).parent.parent.parent / "examples" / "read_directory.py"


def read(store: Path, thread: str, namespace: str = "default") -> list[Any]:
    """What the example prints, in a Python that knows nothing but its standard library."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", READER, store / namespace, thread], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def messages(count: int, size: int = 20) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"message {n}: {'ü' * size}"} for n in range(count)]


def test_a_long_thread_saved_step_by_step(tmp_path: Path) -> None:
    said = messages(300)
    with holdfast.open(f"dir:{tmp_path}/s", namespace="Team") as hf:
        for n in range(1, 301):
            hf.thread("a b").save({"messages": said[:n], "step": n})
    assert read(tmp_path / "s", "a b", "%54eam") == said


@covers("continuum/layout names the newest", "continuum/load without a pointer")
def test_the_head_after_a_rewind(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        thread = hf.thread("t")
        for n in range(1, 60):
            thread.save({"messages": messages(n)})
        thread.rewind("@-10")
        now = thread.latest()
    assert now is not None
    assert read(tmp_path / "s", "t") == now.state["messages"]


def test_messages_of_every_size_and_shape(tmp_path: Path) -> None:
    said: list[Any] = [
        {"role": "user", "content": "short"},
        {"role": "user", "content": "x" * 20_000},
        {"role": "tool", "rows": [{"n": n, "text": "y" * 100} for n in range(100)]},
        {"role": "tool", "by_key": {f"key {n}": "z" * 60 for n in range(100)}},
        {"role": "user", "content": {"$cell": "mine"}},
        *messages(40),
    ]
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        hf.thread("t").save({"messages": said, "notes": "n" * 3000})
    assert read(tmp_path / "s", "t") == said


def test_lists_of_short_items_and_texts_that_grew(tmp_path: Path) -> None:
    said: list[Any] = [{"role": "user", "content": "é" * 20_000, "scores": list(range(3_000))}, *messages(40)]
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        for n in range(5):
            said[0]["content"] += f"and more {n}" * 50
            said[0]["scores"] += ["a", n]
            hf.thread("t").save({"messages": said})
    assert '"$series":[5,' in (tmp_path / "s" / "default" / "threads" / "t" / "log.jsonl").read_text()
    assert read(tmp_path / "s", "t") == said


@covers("C11")
def test_a_dict_with_a_key_like_ours_that_holds_messages(tmp_path: Path) -> None:
    said = [{"$defs": messages(40, 50)}, {"$object": {"$cell": messages(3, 500)}}, *messages(60)]
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        hf.thread("t").save({"a": {"$defs": messages(40, 50)}, "messages": said})
    assert read(tmp_path / "s", "t") == said


@pytest.mark.parametrize("name", ["N" * 200, "~", "a~b", "%", "ü" * 100])
def test_names_of_every_kind(tmp_path: Path, name: str) -> None:
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        for each in (name, f"{name}2", "N" * 201):
            hf.thread(each).save({"messages": messages(3), "of": each})
        hf.thread(name).save({"messages": [name]})
    assert read(tmp_path / "s", name) == [name]


@pytest.mark.parametrize("state", ["just text", 5, {}, [1, 2], None])
def test_a_state_that_is_no_dict_of_messages(tmp_path: Path, state: Any) -> None:
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        hf.thread("t").save(state)
    read_directory: Any = runpy.run_path(str(READER))
    shown = read_directory["state"](tmp_path / "s" / "default", "t")
    assert shown == state if state == [1, 2] else "$bytes" in shown


@pytest.mark.parametrize("tail", [b'{"crc":"12', b"\0" * 5000, None])
def test_a_tail_is_ignored(tmp_path: Path, tail: bytes | None) -> None:
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        hf.thread("t").save({"messages": messages(3)})
    log = tmp_path / "s/default/threads/t/log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + (whole.splitlines(keepends=True)[1] if tail is None else tail))
    assert read(tmp_path / "s", "t") == messages(3)


def test_a_damaged_value_is_not_printed(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        hf.thread("t").save({"messages": ["x" * 30_000]})
    [value] = [file for file in (tmp_path / "s/default/blobs").rglob("*") if file.is_file()]
    value.write_bytes(b"y" + value.read_bytes()[1:])
    done = subprocess.run(
        [sys.executable, READER, tmp_path / "s/default", "t"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "damaged" in done.stderr


def test_it_is_short() -> None:
    lines = [line.strip() for line in READER.read_text().split('"""', 2)[2].splitlines()]
    assert len([line for line in lines if line and not line.startswith('"""')]) <= 60


def test_a_list_that_was_edited_at_many_places_has_tables(tmp_path: Path) -> None:
    said = messages(2000)
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        thread = hf.thread("t")
        thread.save({"messages": said})
        for at in range(0, 2000, 10):
            said[at] = {"role": "user", "content": f"edited {at} {'x' * 50}"}
        thread.save({"messages": said})
        hf.optimize()
    assert read(tmp_path / "s", "t") == said


def test_a_fork_reads_the_cells_of_its_origin_even_when_that_is_dropped(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        hf.thread("origin").save({"messages": messages(100)})
        hf.thread("origin").fork("fork")
        hf.thread("fork").save({"messages": messages(101)})
        assert read(tmp_path / "s", "fork") == messages(101)
        hf.thread("origin").drop()
    assert read(tmp_path / "s", "fork") == messages(101)


def test_a_damaged_line_is_not_printed(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/s") as hf:
        hf.thread("t").save({"messages": messages(100)})
    log = tmp_path / "s/default/threads/t/log.jsonl"
    log.write_bytes(log.read_bytes().replace(b"message 50", b"message 51"))
    done = subprocess.run(
        [sys.executable, READER, log.parent.parent.parent, "t"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "damaged" in done.stderr
