"""Stores with something of everything in them, and what can be seen of a store."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Cipher, Holdfast
from tests.stores.postgres.server import address_at

KEY = bytes(range(32))
CIPHER = Cipher(keys={"k": KEY}, current="k")
KINDS = ("memory", "sqlite", "directory", "postgres")
STATES = 8


def address(kind: str, folder: Path, name: str = "store") -> str:
    if kind == "postgres":
        return address_at(folder / name)
    return {"memory": "memory:", "sqlite": str(folder / f"{name}.db"), "directory": f"dir:{folder / name}"}[kind]


def opened(kind: str, folder: Path, name: str = "store", cipher: Cipher | None = None) -> Holdfast:
    return holdfast.open(address(kind, folder, name), durability="off", cipher=cipher)


def state_at(n: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"message {i} " * 12} for i in range(3 * n)],
        "prompt": "You are careful. " * 1_200,
        "files": {f"file {i}": "text" * n for i in range(80)},
        "step": n,
    }


def fill(hf: Holdfast) -> None:
    """Threads with labels, rewinds, forks, deletions; a fork whose origin is dropped; a run with a journal."""
    hf.thread("gone").save({"step": 0})
    hf.thread("gone").drop()
    thread = hf.thread("t")
    for n in range(1, STATES + 1):
        thread.save(state_at(n), step=n, label=f"at {n}" if n % 4 == 0 else None, metadata={"n": n})
    fork = thread.fork("fork", at="@5")
    fork.save({**state_at(5), "step": 99})
    thread.rewind("@6")
    thread.save({**state_at(6), "step": 66}, step=7)
    thread.rewind("@3")
    thread.delete("@1")
    thread.delete("@2")
    origin = hf.thread("origin")
    origin.save(state_at(3))
    origin.fork("orphan")
    origin.drop()
    with hf.run("run", start={"n": 0}) as run:
        for _ in run.steps():
            run.state["n"] += run.model(lambda: 1)
            if run.state["n"] == 3:
                run.finish("three")
                break


def seen(hf: Holdfast) -> dict[str, Any]:
    """All that can be seen of a store but digests and numbers of threads."""
    found: dict[str, Any] = {}
    for info in hf.threads():
        thread = hf.thread(info.name)
        history = [
            (c.id, c.seq, c.step, c.parent, c.created_at, c.label, c.metadata, c.size, thread.load(c.id).state)
            for c in thread.history()
        ]
        found[info.name] = (info, history, hf.effects(info.name))
    return found


def execute(path: Path, *statements: str) -> None:
    """Change a store's file past Holdfast."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount, statement


def change_blob(path: Path, table: str, column: str, where: str, change: Callable[[bytearray], None]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {where}").fetchall()  # noqa: S608 - texts of the tests
        assert found
        for rowid, blob in found:
            changed = bytearray(blob)
            change(changed)
            update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608 - as above
            connection.execute(update, (bytes(changed), rowid))


def flip(blob: bytearray) -> None:
    blob[len(blob) // 2] ^= 4


def fingerprint(path: Path) -> dict[str, str]:
    """The bytes of everything in a folder but locks."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.endswith(("-gate", "-turn", "-shm"))
    }


class Shown:
    """A store in which some verbs answer otherwise."""

    def __init__(self, store: Any, **verbs: Any) -> None:
        assert all(hasattr(store, verb) for verb in verbs)
        self._store = store
        self._verbs = verbs

    def __getattr__(self, name: str) -> Any:
        return self._verbs.get(name) or getattr(self._store, name)


def shown(store: Any, **verbs: Any) -> Any:
    return Shown(store, **verbs)
