"""The reader in plain Python: what the documented format promises is enough to read a thread without Holdfast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import holdfast

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
    printed = read(tmp_path / "s", "t")
    assert printed[:4] == said[:4]
    assert printed[4] == {"role": "user", "content": {"$object": {"$cell": "mine"}}}
    assert printed[5:] == said[5:]


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
