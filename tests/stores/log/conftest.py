"""Directory stores of a test's own, and ways to look at their files and to damage them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol
from zlib import crc32

import pytest
from msgspec.structs import replace

from holdfast.formats.lines import END_TAG, PREFIX, is_whole, line_of, read_end
from holdfast.stores.log import DirectoryStore


class Open(Protocol):
    def __call__(
        self, *, namespace: str = ..., durability: Literal["full", "normal", "off"] = ..., busy_timeout: float = ...
    ) -> DirectoryStore:
        """A store that is closed when the test ends."""
        ...


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def open_store(path: Path) -> Iterator[Open]:
    opened: list[DirectoryStore] = []

    def open_(
        *,
        namespace: str = "default",
        durability: Literal["full", "normal", "off"] = "off",
        busy_timeout: float = 10.0,
    ) -> DirectoryStore:
        store = DirectoryStore(path, namespace=namespace, durability=durability, busy_timeout=busy_timeout)
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> DirectoryStore:
    return open_store()


def log_of(path: Path, name: str) -> Path:
    """The log of a thread in the default namespace whose name needs no escape."""
    return path / "default" / "threads" / name / "log.jsonl"


def resummed(data: bytes) -> bytes:
    """Lines, with an end of each group that fits them."""
    made: list[bytes] = []
    first = 0
    for line in data.splitlines(keepends=True):
        if line.startswith(END_TAG, PREFIX) and is_whole(line[:-1]):
            line = line_of(replace(read_end(line[:-1]), sum=crc32(b"".join(made[first:]))))  # noqa: PLW2901
            first = len(made) + 1
        made.append(line)
    return b"".join(made)


def records_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def damage_line(log: Path, kind: str, number: int = -1) -> int:
    """Change a byte in the middle of one of the lines of a kind; its offset in the file."""
    data = bytearray(log.read_bytes())
    offset = 0
    found: list[tuple[int, int]] = []
    for line in bytes(data).splitlines(keepends=True):
        if json.loads(line)["t"] == kind:
            found.append((offset, len(line)))
        offset += len(line)
    start, length = found[number]
    at = start + length // 2
    data[at] = ord("~") if data[at] != ord("~") else ord("!")
    log.write_bytes(data)
    return start
