"""Files of cortex checkpoints, as its users wrote them: `Checkpoint<S>` of `metadata` and `state`, through serde.

`python -m tests.importers.cortex_source FILE` writes JSON lines if the name ends so, else an array.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BEGUN = 1_710_000_000


def checkpoint(thread: str, step: int, **metadata: Any) -> dict[str, Any]:
    """One of a line in which each follows the one before it; `state` in it is the state."""
    state = metadata.pop("state", {"messages": [f"message {each}" for each in range(step)], "counter": step})
    said = {
        "id": checkpoint_id(thread, step),
        "thread_id": thread,
        "created_at": BEGUN + step,
        "parent_id": checkpoint_id(thread, step - 1) if step > 1 else None,
        "step": step,
        "label": None,
        "tags": [],
        "state_size": len(json.dumps(state, separators=(",", ":"))),
        "custom": {},
    }
    return {"metadata": {**said, **metadata}, "state": state}


def checkpoint_id(thread: str, step: int) -> str:
    return f"{step:08x}-0000-4000-8000-{sum(thread.encode()):012x}"


def line(thread: str, count: int = 3) -> list[dict[str, Any]]:
    return [checkpoint(thread, step) for step in range(1, count + 1)]


def write(path: Path, said: Any, *, indent: int | None = None) -> Path:
    path.write_text(json.dumps(said, ensure_ascii=False, indent=indent), "utf-8")
    return path


def write_lines(path: Path, said: list[Any]) -> Path:
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in said), "utf-8")
    return path


if __name__ == "__main__":
    target = Path(sys.argv[1])
    (write_lines if target.suffix == ".jsonl" else write)(target, [*line("thread1"), *line("thread2", 2)])
