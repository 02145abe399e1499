"""Helpers of the contract suite: short functions that make the records of a store."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from holdfast.errors import Conflict, Damaged
from holdfast.stores.contract import (
    NO_REFS,
    PLAIN,
    Append,
    Blob,
    CheckpointRow,
    Commit,
    Hashing,
    KeyRow,
    Live,
    Position,
    Refs,
    Span,
    Store,
    Summary,
    ThreadRow,
)
from holdfast.stores.contract_runs import Entry, EntryStatus, Owner, RunRow
from holdfast.threads.scan import checkpoint_at, last_of, thread_named

_ids = itertools.count(1)

# No checkpoint of the suite has a higher seq.
FAR = 1_000_000


def cell(text: str) -> bytes:
    """A cell that is valid in both encodings: JSON."""
    return json.dumps(text).encode()


def run(*texts: str, log: int = 1, start: int = 0, refs: Sequence[Refs] = ()) -> Append:
    return Append(log=log, start=start, cells=tuple(map(cell, texts)), refs=tuple(refs))


def value(*pieces: bytes, by: Hashing = PLAIN) -> Blob:
    """A blob under the address that the store's hashing gives it."""
    return Blob(digest=by.address(b"".join(pieces)), pieces=pieces)


def prompt(store: Store) -> Blob:
    return value(b'"a long system prompt"', by=store.hashing)


def image(store: Store) -> Blob:
    return value(b'"an im', b'age"', by=store.hashing)


def holds(store: Store, shared: Blob) -> bool:
    """Whether the store has a blob. The store may return it in any number of pieces."""
    try:
        return b"".join(store.blob(shared.digest)) == b"".join(shared.pieces)
    except Damaged:
        return False


def summary(step: int = 0, **changes: Any) -> Summary:
    fields: dict[str, Any] = {"step": step, "status": "idle", "agent": None, "size": 10, "updated_at": 1_700_000_000}
    return Summary(**(fields | changes))


def row(seq: int, **changes: Any) -> CheckpointRow:
    """A checkpoint row with a unique id and digest."""
    id_ = next(_ids).to_bytes(16, "big")
    fields: dict[str, Any] = {
        "seq": seq,
        "id": id_,
        "parent": None,
        "step": seq,
        "move": seq,
        "digest": hashlib.sha256(id_).digest(),
        "meta": b'{"made_by":"suite"}',
        "skeleton": b'{"state":[]}',
    }
    return CheckpointRow(**(fields | changes))


def commit(
    name: str,
    expect: Position | None = None,
    *,
    appends: Sequence[Append] = (),
    blobs: Sequence[Blob] = (),
    bases: Sequence[tuple[int, int]] = (),
    origins: Sequence[int] = (),
    shows: Summary | None = None,
    key: KeyRow | None = None,
    **changes: Any,
) -> Commit:
    """A commit that follows `expect`; `changes` are fields of its row."""
    seq, move = (expect.last + 1, expect.move + 1) if expect else (1, 1)
    parent = (0, expect.head) if expect else None
    made = row(seq, **({"move": move, "parent": parent} | changes))
    return Commit(
        name=name,
        expect=expect,
        row=made,
        appends=tuple(appends),
        blobs=tuple(blobs),
        summary=shows or summary(made.step),
        bases=tuple(bases),
        origins=tuple(origins),
        key=key,
    )


def run_row(thread: int, **changes: Any) -> RunRow:
    """A run with fence 1 that no worker holds."""
    fields: dict[str, Any] = {"thread": thread, "status": "running", "fence": 1, "created_at": 1, "updated_at": 1}
    return RunRow(**(fields | changes))


def held(store: Store, thread: int, **changes: Any) -> RunRow:
    """A run that a worker holds for an hour."""
    clock = store.clock()
    fields = {"owner": Owner("host", "boot", 1, 2, 3), "clock": clock.id, "lease_until": clock.now + 3_600_000}
    return run_row(thread, **(fields | changes))


def effect(status: EntryStatus = "done", **changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "branch": 1,
        "step": 1,
        "key": "key",
        "name": "tool",
        "kind": "irreversible",
        "status": status,
        "arguments": b"a digest",
        "fence": 1,
        "started_at": 1_700_000_000,
    }
    return Entry(**(fields | changes))


def numbered(*rows: Entry) -> list[Entry]:
    """Entries with the numbers they get in a journal that holds only these."""
    return [msgspec.structs.replace(row, number=number) for number, row in enumerate(rows, 1)]


def journaled(store: Store, thread: int, fence: int, rows: Sequence[Entry]) -> list[int]:
    """Write entries inside a run; return their numbers. Entries without a number are new."""
    last = store.last_entry(thread)
    following = itertools.count(last + 1)
    entries = [msgspec.structs.replace(row, number=row.number or next(following)) for row in rows]
    try:
        store.journal(thread, fence, entries, last=last)
    except Conflict:
        if store.last_entry(thread) == last:
            raise
        return journaled(store, thread, fence, rows)
    return [entry.number for entry in entries]


def put_run(store: Store, row: RunRow) -> None:
    """Replace the record of a running run."""
    store.journal(row.thread, row.fence, (), last=None, run=row)


def suspended(store: Store, row: RunRow, entry: Entry | None, last: int) -> int:
    """Replace the record of a running run and write the question it waits for; return the question's number."""
    number = 0 if entry is None else entry.number or last + 1
    rows = [] if entry is None else [msgspec.structs.replace(entry, number=number)]
    store.journal(row.thread, row.fence, rows, last=last, run=msgspec.structs.replace(row, question=number))
    return number


def posted(store: Store, thread: int, row: Entry, *, last: int | None = None, run: RunRow | None = None) -> int:
    """Append an entry from outside the run, after entry `last` or after the newest; return its number."""
    newest = store.last_entry(thread) if last is None else last
    try:
        store.post(thread, msgspec.structs.replace(row, number=newest + 1), run=run)
    except Conflict:
        if last is not None or store.last_entry(thread) == newest:
            raise
        return posted(store, thread, row, run=run)
    return newest + 1


def settled(store: Store, thread: int, number: int, status: EntryStatus, row: Entry, *runs: RunRow | None) -> None:
    """Replace an entry in this status from outside the run. `runs` are the expected record and the new one."""
    run, then = (*runs, None, None)[:2]
    store.post(thread, msgspec.structs.replace(row, number=number), status=status, run=run, then=then)


class Line:
    """A thread being written: each save appends cells to log 1, and every row refers to all of them."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.position: Position | None = None
        self._seqs: list[int] = []

    @property
    def at(self) -> Position:
        assert self.position is not None, "nothing has been saved yet"
        return self.position

    @property
    def number(self) -> int:
        return self.at.thread

    def save(self, *texts: str, cell_refs: Sequence[Refs] = (), **changes: Any) -> Position:
        """Save once; `changes` are fields of the row, or of the commit (values, bases, origins, shows)."""
        seq = self.position.last + 1 if self.position else 1
        start = len(self._seqs)
        seqs = self._seqs + [seq] * len(texts)
        changes.setdefault("refs", Refs(spans=(Span(0, 1, 0, len(seqs), seqs[0], seqs[-1]),)) if seqs else NO_REFS)
        runs = [run(*texts, start=start, refs=cell_refs)] if texts else []
        self.position = self.store.commit(commit(self.name, self.position, appends=runs, **changes))
        self._seqs = seqs
        return self.position

    def rewind(self, to: int) -> Position:
        self.position = self.store.rewind(self.at, to=to, summary=summary(to))
        return self.position

    def span(self, start: int = 0, count: int | None = None) -> Span:
        """The span of some of the cells; all from `start` on if `count` is not given."""
        seqs = self._seqs[start:] if count is None else self._seqs[start : start + count]
        return Span(self.number, 1, start, len(seqs), seqs[0], seqs[-1])

    def live(self, *spans: Span, horizon: int = FAR) -> Live:
        """For a sweep that only drops."""
        return Live(spans=spans, horizon=horizon)

    def whole(self, *spans: Span, horizon: int = FAR, blobs: Collection[bytes] = ()) -> Live:
        """For a sweep that also merges and records."""
        return Live(spans=spans, horizon=horizon, blobs=frozenset(blobs))

    def stored(self) -> ThreadRow:
        found = thread_named(self.store, self.name)
        assert found is not None, "the thread does not exist"
        return found


def saved(store: Store, name: str, *saves: str) -> Line:
    """A thread with one checkpoint for each of `saves`, which appends a cell for each of its words."""
    line = Line(store, name)
    for words in saves:
        line.save(*words.split())
    return line


def running(store: Store, name: str = "a", **changes: Any) -> tuple[Line, RunRow]:
    """A thread with a run that a worker holds for an hour."""
    line = saved(store, name, "x")
    row = held(store, line.number, **changes)
    store.claim(None, row)
    return line, row


def inside(made: Commit, **changes: Any) -> Commit:
    """The commit with fields for a run."""
    return msgspec.structs.replace(made, **changes)


def texts_of(store: Store, *spans: Span) -> list[list[str]]:
    """The cells of each span, as the texts they were made of."""
    return [[json.loads(data) for data in cells.cells] for cells in store.cells(spans)]


def names_of(store: Store, *, prefix: str = "", after: str | None = None, limit: int = FAR, **which: Any) -> list[str]:
    return [thread.name for thread in store.threads(prefix=prefix, after=after, limit=limit, **which)]


def numbers_of(store: Store, *, after: int | None = None, limit: int = FAR) -> list[int]:
    return [thread.number for thread in store.numbered(after=after, limit=limit)]


def swept_blobs(store: Store, used: Collection[bytes] = (), *, epoch: int | None = None) -> int:
    """Sweep the unswept threads, without a change to their cells, then the blobs; return how many were dropped."""
    epoch = store.sweep_blobs().epoch if epoch is None else epoch
    while unswept := (collected := store.sweep_blobs(epoch)).unswept:
        assert not collected.dropped
        for number, token in unswept.items():
            spans = tuple(Span(number, log, 0, FAR, 1, FAR) for log in (1, 2, 77))
            store.sweep(number, Live(spans, last_of(store, number), frozenset(used), token))
    return len(collected.dropped)


def noise(store: Store, size: int, seed: str = "noise") -> bytes:
    """Incompressible bytes that are valid in the store's encoding."""
    if store.encoding == "packed":
        return hashlib.shake_256(seed.encode()).digest(size)
    return b'"' + hashlib.shake_256(seed.encode()).hexdigest(size // 2).encode() + b'"'


def everything(store: Store) -> list[object]:
    """All that a store shows of its threads, for comparisons before and after."""
    seen: list[object] = []
    for thread in store.threads(prefix="", after=None, limit=FAR):
        number = thread.position.thread
        whole = [checkpoint_at(store, number, seq) for seq in range(1, thread.position.last + 2)]
        seen.append((thread, whole, store.checkpoints(number, before=None, limit=FAR), sorted(store.forks(number))))
    return [*seen, store.numbered(after=None, limit=FAR)]
