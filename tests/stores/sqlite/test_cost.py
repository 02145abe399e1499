"""What a save costs: bytes written and kept for two new messages of ordinary text. Sizes do not depend on luck."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import msgspec
import pytest

from holdfast.stores.contract import Append, CheckpointRow, Commit, Live, Position, Refs, Span, Summary
from holdfast.stores.sqlite import SQLiteStore
from tests.covers import covers
from tests.stores.sqlite.conftest import Open

SAVES = 400
WORDS = [word for line in (__doc__ or "", Path(__file__).read_text()) for word in line.split()]


def message(source: random.Random, role: str, size: float) -> dict[str, object]:
    text = ""
    while len(text) < size:
        text += f"{source.choice(WORDS)} {source.randrange(10_000) if source.random() < 0.2 else source.choice(WORDS)} "
    return {"role": role, "content": text, "id": f"{source.getrandbits(64):016x}"}


def saves() -> list[tuple[int, tuple[bytes, bytes]]]:
    """For each save the length of its new messages as JSON, and their cells."""
    source = random.Random(3)
    made = []
    for _ in range(SAVES):
        pair = (
            message(source, "assistant", source.lognormvariate(6.6, 0.9)),
            message(source, "tool", source.lognormvariate(7.1, 0.9)),
        )
        made.append((len(json.dumps(pair)), (msgspec.msgpack.encode(pair[0]), msgspec.msgpack.encode(pair[1]))))
    return made


def save(store: SQLiteStore, position: Position | None, n: int, cells: tuple[bytes, bytes]) -> Position:
    source = random.Random(n)
    seq = n + 1
    meta = {
        "created_at": 1_700_000_000_000_000 + n,
        "status": "running",
        "trigger": "step",
        "agent": "agent",
        "size": n,
    }
    skeleton = {"messages": [[0, 1, 0, seq * 2]], "step": seq, "plan": "look, think, write", "todo": ["one", "two"]}
    return store.commit(
        Commit(
            name="thread",
            expect=position,
            row=CheckpointRow(
                seq=seq,
                id=source.randbytes(16),
                parent=(0, n) if n else None,
                step=seq,
                move=seq,
                digest=source.randbytes(32),
                meta=msgspec.msgpack.encode(meta),
                refs=Refs(spans=(Span(0, 1, 0, seq * 2, 1, seq),)),
                skeleton=msgspec.msgpack.encode(skeleton),
            ),
            appends=(Append(1, n * 2, cells),),
            blobs=(),
            summary=Summary(step=seq, status="running", agent="agent", size=n, updated_at=1_700_000_000_000_000 + n),
            bases=((position.thread, position.head),) if position else (),
        )
    )


@covers("H1", "H2", "cortex/CheckpointConfig.compress")
def test_bytes_per_save(path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(durability="normal")
    store.reclaim()
    empty = path.stat().st_size
    monkeypatch.setattr("holdfast.stores.sqlite.writer._CHECKPOINT_AFTER", 1 << 40)
    position = None
    made = saves()
    for n, (_, cells) in enumerate(made):
        position = save(store, position, n, cells)
    text = sum(size for size, _ in made)
    assert 3000 < text / SAVES < 4500
    assert path.with_name("store.db-wal").stat().st_size / SAVES <= 16 << 10
    store.reclaim()
    grown = path.stat().st_size - empty
    assert grown <= 0.9 * text
    span = Span(1, 1, 0, SAVES * 2, 1, SAVES)
    before = store.cells([span])[0].cells
    store.sweep(1, Live((span,), SAVES, frozenset()))
    store.reclaim()
    assert path.stat().st_size - empty < 0.8 * grown
    assert store.cells([span])[0].cells == before
    assert before == [cell for _, pair in made for cell in pair]


def test_bytes_around_a_checkpoint(path: Path, open_store: Open) -> None:
    """Id, digest, parent, step, move, checksums and SQLite's own: about a hundred bytes."""
    store = open_store()
    position = None
    for n in range(300):
        position = save(store, position, n, (b"a", b"b"))
    store.close()
    reader = sqlite3.connect(path)
    if not reader.execute("SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'").fetchone():
        reader.close()
        pytest.skip("this SQLite cannot tell what its pages hold")
    pages, own, rows = reader.execute(
        """SELECT (SELECT sum(pgsize - unused) FROM dbstat WHERE name = 'checkpoint'),
        sum(length(meta) + length(skeleton) + length(refs) + length(cells)), count(*) FROM checkpoint"""
    ).fetchone()
    reader.close()
    assert rows == 300
    assert (pages - own) / rows <= 110


@covers("H6")
def test_a_save_takes_few_statements(store: SQLiteStore) -> None:
    position = save(store, None, 0, (b"a", b"b"))
    statements: list[str] = []
    assert store.writer.connection is not None
    store.writer.connection.set_trace_callback(statements.append)
    save(store, position, 1, (b"c", b"d"))
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
