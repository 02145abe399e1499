"""Stores in files, and how one checkpoint of them is damaged behind Holdfast's back."""

from __future__ import annotations

import json
from pathlib import Path

from tests.threads.wholes import change_blob, flip


def file_address(kind: str, folder: Path, name: str = "store") -> str:
    """Where to open a store that a new process finds."""
    return {"sqlite": str(folder / f"{name}.db"), "directory": f"dir:{folder / name}"}[kind]


def damage(address: str, thread: str, *, seq: int) -> None:
    """Flip a bit in what a checkpoint of a thread holds. Nobody may have the store open."""
    if not address.startswith("dir:"):
        change_blob(Path(address), "checkpoint", "skeleton", f"row_key & 4294967295 = {seq}", flip)
        return
    log = Path(address.removeprefix("dir:")) / "default" / "threads" / thread / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines):
        record = json.loads(line)
        if record["t"] == "checkpoint" and record["seq"] == seq:
            at = line.index(b'"skeleton"') + len(b'"skeleton"') + 20
            lines[number] = line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]
    log.write_bytes(b"".join(lines))
