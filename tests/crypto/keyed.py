"""Encrypted stores and the data keys in them, for the tests of those."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import holdfast
from holdfast import Cipher, Holdfast
from holdfast.stores.contract import KeyRow, Store
from tests.stores.postgres.server import address_at

KINDS: Final = ("sqlite", "directory", "postgres")
KEY: Final = bytes(range(32))
CIPHER: Final = Cipher(keys={"k": KEY}, current="k")
MESSAGES: Final = [{"text": f"message {n} " + "x" * 300} for n in range(50)]


def address_of(kind: str, folder: Path) -> str:
    if kind == "postgres":
        return address_at(folder)
    return str(folder / "store.db") if kind == "sqlite" else f"dir:{folder / 'store'}"


def opened(address: str, cipher: Cipher = CIPHER) -> Holdfast:
    return holdfast.open(address, durability="off", cipher=cipher)


def rows(store: Store) -> dict[bytes, KeyRow]:
    return {row.id: row for row in store.keys(limit=1_000)}


def key_made_by_saving(hf: Holdfast, name: str, state: dict[str, Any] | None = None) -> KeyRow:
    store = hf.context.store
    before = rows(store)
    hf.thread(name).save(state or {"name": name})
    (made,) = [row for id, row in rows(store).items() if id not in before]
    return made


def state_of(hf: Holdfast, name: str) -> Any:
    found = hf.thread(name).latest()
    assert found is not None
    return found.state
