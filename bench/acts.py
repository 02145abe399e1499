"""Claims of acts: the time of one among 1,000 and among 1,000,000, on each store. `make bench-acts`.

A claim is one journal write with an intent: one durable commit. The other claims are of other threads. The goal is a
99th percentile that is at most twice as long among a million. Measured in turns, because a disk is not always as fast.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from holdfast.formats import lines as ln
from holdfast.stores.contract import CheckpointRow, Commit, Store, Summary
from holdfast.stores.contract_runs import ActClaim, Entry, RunRow
from holdfast.stores.rows import act_checksum
from holdfast.urls import open_store
from tests.stores.postgres.server import address

FEW: Final = 1_000
MANY: Final = 1_000_000
CLAIMS: Final = 200  # in each turn
TURNS: Final = 10
ELSEWHERE: Final = 7  # the number of a thread that does not exist
_TOOL: Final = hashlib.sha256(b"pay").digest()[:8]


def key_of(text: str) -> bytes:
    return _TOOL + hashlib.sha256(text.encode()).digest()[:24]


class Claims:
    """A store with some claims, and a run that makes others."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.seconds: list[float] = []
        made = Commit(
            name="payer",
            expect=None,
            row=CheckpointRow(seq=1, id=bytes(16), parent=None, step=0, move=1, digest=bytes(32), meta=b"{}"),
            appends=(),
            blobs=(),
            summary=Summary(step=0, status="running", agent=None, size=0, updated_at=1),
        )
        self._thread = store.commit(made).thread
        store.claim(None, RunRow(thread=self._thread, status="running", fence=1))
        self._numbers = itertools.count(1)

    def measure(self, claims: int) -> None:
        for _ in range(claims):
            number = next(self._numbers)
            entry = Entry(
                branch=1,
                step=1,
                key=f"pay#{number}",
                name="pay",
                kind="irreversible",
                status="started",
                arguments=bytes(32),
                fence=1,
                started_at=1,
                act=key_of(f"new {number}"),
                identity=("pay", f'{{"invoice":"{number}"}}'),
                number=number,
            )
            started = time.perf_counter()
            self.store.journal(self._thread, 1, [entry], last=number - 1, claims=[ActClaim(number)])
            self.seconds.append(time.perf_counter() - started)


def rows(count: int) -> Iterator[tuple[bytes, bytes, int, int, int]]:
    for number in range(1, count + 1):
        key = key_of(str(number))
        yield b"default", key, ELSEWHERE, number, act_checksum(b"default", key, ELSEWHERE, number)


# -- filling a store with claims, without its own verbs: a million commits would take hours ---------------------------


def fill_sqlite(path: Path, count: int) -> str:
    import sqlite3  # noqa: PLC0415 - only here

    open_store(str(path), namespace="default", durability="full").close()
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO act VALUES (?, ?, ?, ?, ?)", sorted(rows(count)))
    return str(path)


def fill_directory(path: Path, count: int) -> str:
    open_store(f"dir:{path}", namespace="default", durability="full").close()
    for part in range(256):
        (path / "default" / "acts" / f"{part:02x}").mkdir(parents=True)
    for _, key, thread, number, _ in rows(count):
        name = key.hex()
        line = ln.reseal(b'{"thread":%d,"number":%d}' % (thread, number))
        (path / "default" / "acts" / name[-2:] / name).write_bytes(line)
    return f"dir:{path}"


def fill_postgres(path: Path, count: int) -> str:
    schema = f"bench_acts_{count}_{path.parent.name[-8:]}".lower()
    url = address(schema)
    open_store(url, namespace="default", durability="full").close()
    with psycopg.connect(url.partition("?schema")[0].partition("&schema")[0]) as connection:
        with connection.cursor().copy(f'COPY "{schema}".act FROM STDIN (FORMAT binary)') as copy:
            copy.set_types(["bytea", "bytea", "int8", "int8", "int8"])
            for row in rows(count):
                copy.write_row(row)
        connection.execute(f'ANALYZE "{schema}".act')
    return url


FILLS: Final[dict[str, Callable[[Path, int], str]]] = {
    "sqlite": fill_sqlite,
    "directory": fill_directory,
    "postgres": fill_postgres,
}


@contextmanager
def claims_among(kind: str, folder: Path, count: int) -> Iterator[Claims]:
    store = open_store(FILLS[kind](folder / f"{kind}-{count}", count), namespace="default", durability="full")
    try:
        yield Claims(store)
    finally:
        store.close()


def main(kinds: list[str], many: int = MANY) -> None:
    print(f"{'store':10}  {'claims':>9}  {'median ms':>9}  {'p99 ms':>8}  {'p99 ratio':>9}")
    for kind in kinds:
        with (
            tempfile.TemporaryDirectory(prefix="bench-acts-") as folder,
            claims_among(kind, Path(folder), FEW) as few,
            claims_among(kind, Path(folder), many) as among,
        ):
            for claims in (few, among):
                claims.measure(CLAIMS)
                claims.seconds.clear()  # warm now
            for _ in range(TURNS):
                for claims in (few, among):
                    claims.measure(CLAIMS)
            first = _p99(few.seconds)
            for count, claims in ((FEW, few), (many, among)):
                p50, p99 = statistics.median(claims.seconds), _p99(claims.seconds)
                print(f"{kind:10}  {count:9,}  {p50 * 1000:9.2f}  {p99 * 1000:8.2f}  {p99 / first:9.2f}", flush=True)


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


if __name__ == "__main__":
    main(sys.argv[1:] or list(FILLS))
