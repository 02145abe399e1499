"""Read threads, checkpoints and cells, and lock the rows that a write needs.

Each read verb sees one snapshot, if possible in one round trip.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.stores import rows, rules, segments
from holdfast.stores.contract import Cells, CheckpointRow, Head, NumberedThread, Span, ThreadRow
from holdfast.stores.contract_runs import RunRow
from holdfast.stores.rows import (
    ENTRIES_COLUMN,
    RUN_COLUMNS,
    StoredThread,
    name_digest,
    read_checkpoint,
    read_run,
    read_thread,
    to_bytes,
)
from holdfast.stores.segments import MAX_SEQ, MAX_THREAD, SEQ_BITS, key
from holdfast.stores.sql.transaction import Query, Row, Transaction, growing, in_range, salvaged

# Rows fetched at once when tombstones must be skipped.
CHUNK: Final = 256
_REFS_END: Final = 6  # columns of a checkpoint up to its refs
_HEAD_END: Final = 8  # columns of the statement `head` before those of the thread
_thread_columns: Final = itemgetter(slice(_HEAD_END, None))

_LATEST: Final = (1 << 63) - 1
_LAST_NUMBER: Final = (1 << 63) - 1  # of a row, which may be forged; a thread has MAX_THREAD at most
_MOST_THREADS: Final = 10_000
# For patterns of LIKE:
_NO_LETTERS: Final = re.compile(r"[\x00-@\[-`{-\x7f]+")
_SPECIAL: Final = re.compile(r"[%_\\]")
_ESCAPED: Final = r"\\\g<0>"
_NUL: Final = "\0"
_LONGEST_PATTERN: Final = 1_000  # databases limit the length


# -- threads --------------------------------------------------------------------------------------------------------


def head(tx: Transaction, name: str) -> Head | None:
    space, wanted = tx.namespace, to_bytes(name)
    by_digest = "thread_by_digest", (space, name_digest(space, wanted))
    try:
        answers, digested = tx.ask(("head", (space, wanted)), by_digest)
        named = [*map(_thread_columns, answers)]
    except Damaged:
        # The head may be on the damaged page, so it is read apart from the thread.
        answers = []
        named, digested = tx.ask(("thread_by_name", (space, wanted)), by_digest)
    if named != digested:
        raise _disagreeing(space, wanted, [*named, *digested])
    if not named:
        if tx.has("beside_name") and tx.rows("beside_name", space, wanted) != [(1,)]:
            raise rules.damaged("the index of thread names is damaged")
        return None
    found = read_thread(named[0])
    newest, *at = answers[0][:_HEAD_END] if answers else _head_apart(tx, found)
    # A third lookup: the thread's row must agree with the table of checkpoints.
    if newest != found.thread_no << SEQ_BITS | found.last or at[0] is None:
        raise found.disagreeing(newest)
    thread = found.record()
    try:
        return Head(thread, at[0] if isinstance(at[0], Damaged) else read_checkpoint(*at))
    except Damaged as damage:
        return Head(thread, damage)


def _head_apart(tx: Transaction, thread: StoredThread) -> Row:
    """The newest key of a thread's checkpoints, and the columns of its head, or the error of reading it."""
    number = thread.thread_no
    newest, at = salvaged(tx, [("newest", (number,)), ("checkpoint", (key(number, thread.head),))])
    found = None if isinstance(newest, Damaged) or not newest else newest[0][0]
    if isinstance(at, Damaged):
        return found, at
    return (found, *at[0]) if at else (found, None)


def query_for_number(namespace: bytes, name: bytes) -> Query:
    """One query for a thread's name in a write transaction, where two queries could see different moments."""
    return "number_of_name", (namespace, name, name_digest(namespace, name))


def number_found(answer: Sequence[Row]) -> int:
    """The number of the thread with the name; 0 if there is none. `Damaged` if the two lookups disagree."""
    [(by_name, by_digest)] = answer
    if by_name != by_digest:
        raise _disagreeing(b"", b"", ())
    return by_name or 0


def _disagreeing(namespace: bytes, name: bytes, found: Sequence[Row]) -> Damaged:
    """The error for a name that only one of two lookups found. It carries the thread, if its record is undamaged."""
    damage = rules.damaged("two lookups of a thread's name disagree")
    for row in found:
        with suppress(Damaged):
            stored = read_thread(row)
            if (stored.namespace, stored.name) == (namespace, name):
                damage.known = damage.known or stored.record()
    return damage


def find_number(tx: Transaction, number: int, *more: Query) -> tuple[StoredThread | None, list[list[Row]]]:
    """The thread with this number, None if this namespace does not have it; also the answers to other queries.

    A dropped thread has no name.
    """
    if not 1 <= number <= MAX_THREAD:
        return None, [[] for _ in more]
    found, *answers = tx.ask(("thread_by_number", (number,)), *more)
    if not found:
        # As with names, two independent lookups must agree that it does not exist.
        if tx.rows("has_rows", number) not in ([(False,)], [(0,)]):
            raise rules.damaged(f"the record of the thread with number {number} is missing, but its checkpoints exist")
        return None, answers
    if found[0][1] != tx.namespace and _is_elsewhere(found[0]):
        return None, answers  # not verified: its damage concerns the other namespace
    stored = read_thread(found[0])
    return (stored if stored.namespace == tx.namespace else None), answers


def _is_elsewhere(row: Row) -> bool:
    """Whether the digest of a thread's name confirms the namespace in its row. One that was dropped has no digest."""
    _, namespace, name, digest = row[:4]
    return isinstance(namespace, bytes) and isinstance(name, bytes) and name_digest(namespace, name) == digest


def threads(
    tx: Transaction, *, prefix: str, after: str | None, limit: int, contains: str = "", newest: int | None = None
) -> list[ThreadRow]:
    """A page of threads. The database selects at least those with the wanted text in their names."""
    start, wanted = to_bytes(prefix), contains.casefold()
    last = None if after is None else to_bytes(after)
    page: list[ThreadRow] = []
    size = limit
    while len(page) < limit:
        found = tx.rows(*_threads_query(tx.namespace, start, last, size, wanted, newest))
        for row in found:
            stored = read_thread(row)
            # Names are ordered by their bytes, so the first one without the prefix is the end.
            if newest is None and (stored.name is None or not stored.name.startswith(start)):
                return page
            record = stored.record()
            last = stored.name
            newest = None if newest is None else stored.updated_at
            if wanted in record.name.casefold():
                page.append(record)
                if len(page) == limit:
                    return page
        if len(found) < size:
            return page
        size = min(size * 8, _MOST_THREADS)  # few names match exactly, and the next query may scan the table again
    return page


def numbered(tx: Transaction, *, after: int | None, limit: int) -> list[NumberedThread]:
    """A page of threads. At its end the table and an index must agree."""
    above, most = min(max(after or 0, 0), _LAST_NUMBER), max(limit, 0)
    # One lookup. The scan below would pass over the threads of all other namespaces.
    if most == 1 and (one := _one_numbered(tx, above + 1)) is not None:
        return [one]
    try:
        found = growing(tx.rows("threads_by_number", tx.namespace, above, most), above + 1)
        if not found and most:
            require_all(tx)
    except Damaged:
        # The threads on a damaged page are missing in the table. An index has their numbers.
        numbers = growing(tx.rows("thread_numbers", tx.namespace, above, most), above + 1)
        page = [one for (number,) in numbers if (one := _one_numbered(tx, number)) is not None]
        if not page:
            raise
        return page
    return [_numbered_or_damaged(row) for row in found]


def _one_numbered(tx: Transaction, number: int) -> NumberedThread | None:
    try:
        found, _ = find_number(tx, number)
    except Damaged as damage:
        return NumberedThread(number, damage, damage)
    return None if found is None else _numbered(found)


def require_all(tx: Transaction) -> None:
    """`Damaged` if the table of threads and its index disagree. A sweep would drop what a hidden thread uses."""
    if tx.has("thread_counts"):
        in_table, in_index = tx.rows("thread_counts", tx.namespace)
        if in_table != in_index:
            raise rules.damaged("two listings of the threads disagree")


def _numbered_or_damaged(row: Row) -> NumberedThread:
    try:
        if row[0] > MAX_THREAD:
            raise Damaged(f"a thread has the number {row[0]}, which no store assigns")
        return _numbered(read_thread(row))
    except Damaged as damage:
        return NumberedThread(row[0], damage, damage)


def _numbered(thread: StoredThread) -> NumberedThread:
    return NumberedThread(thread.thread_no, None if thread.name is None else rows.to_text(thread.name), thread.last)


def _threads_query(
    namespace: bytes, prefix: bytes, after: bytes | None, size: int, wanted: str, newest: int | None
) -> tuple[Any, ...]:
    """A statement, and its parameters."""
    if newest is not None:
        changed = max(min(newest, _LATEST), -_LATEST)
        return "threads_newest", namespace, changed, after, size, prefix, *_patterns(wanted)
    first = prefix if after is None or after < prefix else after + b"\0"  # the next possible name
    if not wanted:
        return "threads_from", namespace, first, size
    return "threads_containing", namespace, first, size, *_patterns(wanted)


def _patterns(wanted: str) -> tuple[str | None, bytes]:
    """For the names that contain a text: a pattern of LIKE for ASCII names, None for any, and bytes in all of them.

    A name may contain ASCII letters of the text as other characters (a Kelvin sign is a k), but not as other digits.
    """
    if not wanted:
        return None, b""
    plain = max(_NO_LETTERS.findall(wanted), key=len, default="").encode()
    if not wanted.isascii():
        return "", plain
    return f"%{_SPECIAL.sub(_ESCAPED, wanted.partition(_NUL)[0][:_LONGEST_PATTERN])}%", plain


def forks(tx: Transaction, thread: int) -> list[int]:
    found, answers = find_number(tx, thread, ("forks", (thread,)))
    return [] if found is None else active_forks(tx, thread, answers[0])


def active_forks(tx: Transaction, number: int, registered: Sequence[Row]) -> list[int]:
    """The registered forks that use cells. Sweep and drop rely on this list: `Damaged` if a fork is missing."""
    if tx.has("forks_in_index") and tx.rows("forks_in_index", number) != [(row[0],) for row in registered]:
        raise rules.damaged(f"two lookups of the forks of the thread with number {number} disagree")
    found: list[int] = []
    for fork, *row in registered:
        stored = None if row[0] is None else read_thread(row)
        if stored is None or stored.namespace != tx.namespace:
            raise rules.damaged(f"the thread with number {fork}, a fork of the thread with number {number}, is missing")
        # A dropped thread stays registered, so that forks of it find its origins, but it uses no cells.
        if stored.name is not None:
            found.append(fork)
    return found


# -- checkpoints ----------------------------------------------------------------------------------------------------


def checkpoints(
    tx: Transaction,
    thread: int,
    *,
    before: int | None,
    limit: int,
    label: str | None = None,
    step: int | None = None,
) -> list[CheckpointRow]:
    found, _ = find_number(tx, thread)
    if found is None or found.name is None or limit <= 0:
        return []
    low, high = 1, found.last if before is None else min(before - 1, found.last)
    top = high
    page: list[CheckpointRow] = []
    met: list[int] = []
    while top > 0 and len(page) < limit:
        size = CHUNK if step is not None else min(limit - len(page), CHUNK)
        ends = (key(thread, 1), key(thread, top), size)
        by_label = () if label is None else (to_bytes(label),)
        chunk = tx.rows("checkpoints_by_label" if by_label else "checkpoints_down", *ends, *by_label)
        for fields in chunk:
            row = read_checkpoint(*fields)
            met.append(fields[0])
            # Tombstones keep their rows, so a gap means damage.
            if (fields[0] >> SEQ_BITS != thread or label is None) and fields[0] != key(thread, top):
                raise missing(thread, top)
            top = row.seq - 1
            # Steps are compared here, after a row is verified: a WHERE clause would miss a row with a damaged step.
            if not row.deleted and (step is None or row.step == step):
                page.append(row)
                if len(page) == limit:
                    low = row.seq
                    break
        else:
            if len(chunk) < size:
                if label is None and top > 0:
                    raise missing(thread, top)
                break
    if label is not None and tx.has("labelled"):
        _require_same_labels(tx, to_bytes(label), (key(thread, low), key(thread, max(high, 0))), met)
    return page


def walk(
    tx: Transaction, thread: int, *, after: int, limit: int, refs_only: bool = False
) -> list[CheckpointRow | Damaged]:
    """The checkpoints of a range of seqs; an unreadable one is represented by its error."""
    first, last = max(after, 0) + 1, min(max(after, 0) + limit, MAX_SEQ)
    if first > last or not 1 <= thread <= MAX_THREAD:
        find_number(tx, thread)  # raises if the record of the thread is damaged
        return []
    name = "refs" if refs_only else "walk"
    ends = key(thread, first), key(thread, last)
    try:
        found, (page,) = find_number(tx, thread, (name, ends))
    except Damaged:
        found, page = find_number(tx, thread)[0], None  # a checkpoint may be on a damaged page
    if found is None or found.name is None:
        return []
    if page is None:
        page = in_range(tx, name, "checkpoint", ends[0], key(thread, min(last, found.last)))
    stored = {row[0]: _read_or_damaged(row, refs_only=refs_only) for row in page}
    # An older version of the thread's record hides no checkpoint that is there.
    newest = max((row_key & MAX_SEQ for row_key in stored if ends[0] <= row_key <= ends[1]), default=0)
    last = min(last, max(found.last, newest))
    return [stored.get(key(thread, seq)) or missing(thread, seq) for seq in range(first, last + 1)]


def _read_or_damaged(row: Row, *, refs_only: bool = False) -> CheckpointRow | Damaged:
    if row[-1] is None:
        number, seq = row[0] >> SEQ_BITS, row[0] & MAX_SEQ
        return Damaged(f"checkpoint {seq} of the thread with number {number} is on a damaged page")
    try:
        return read_checkpoint(*row[:_REFS_END], keep_meta=False) if refs_only else read_checkpoint(*row)
    except Damaged as damage:
        return damage


def _require_same_labels(tx: Transaction, label: bytes, ends: tuple[int, int], met: list[int]) -> None:
    """`Damaged` unless the index and the rows agree on which checkpoints have the label.

    If the index lost an entry, an older checkpoint would be returned instead of the newest.
    """
    if [row_key for (row_key,) in tx.rows("labelled", *ends, label)] != met:
        raise rules.damaged("a label is missing from the index of labels")


def missing(number: int, seq: int) -> Damaged:
    return Damaged(f"checkpoint {seq} of the thread with number {number} is missing")


# -- cells ----------------------------------------------------------------------------------------------------------


def cells(tx: Transaction, spans: Sequence[Span]) -> list[Cells]:
    queries: list[Query] = []
    wanted: dict[int, segments.Wanted] = {}
    for number, own in segments.by_thread(spans).items():
        if not 1 <= number <= MAX_THREAD:
            raise rules.cells_lost(number)
        wanted[number] = segments.Wanted(own)
        queries.append(("thread_by_number", (number,)))
        for first, last in wanted[number].commits():
            ends = number << SEQ_BITS | first, number << SEQ_BITS | last
            queries += [("cells", ends), ("segments", ends)]
    try:
        answers = tx.ask(*queries)
    except Damaged:
        answers = _cells_apart(tx, queries)
    for (name, args), found in zip(queries, answers, strict=True):
        if name != "thread_by_number":
            wanted[args[0] >> SEQ_BITS].add(found)
        elif not found or read_thread(found[0]).namespace != tx.namespace:
            raise rules.cells_lost(args[0])
    pieces: dict[int, segments.ByLog] = {}
    for number, held in wanted.items():
        pieces[number] = held.pieces()
    return segments.assemble(spans, pieces)


def _cells_apart(tx: Transaction, queries: Sequence[Query]) -> list[list[Row]]:
    """The answers to queries of `cells`, without the commits on damaged pages."""
    answers: list[list[Row]] = []
    ends: dict[int, int] = {}
    for name, args in queries:
        if name != "cells":
            answers.append(tx.rows(name, *args))
            if name == "thread_by_number" and answers[-1]:
                ends[args[0]] = key(args[0], read_thread(answers[-1][0]).last)
        else:
            low, high = args
            answers.append(in_range(tx, "cells", "cells_of_one", low, min(high, ends.get(low >> SEQ_BITS, 0))))
    return answers


# -- rows that a write locks until the end of its transaction ---------------------------------------------------------


class StoredRun(NamedTuple):
    """A run's record, its columns, and the number of its newest journal entry. Without a run: None, () and 0."""

    row: RunRow | None
    columns: Row
    last: int


NO_RUN: Final = StoredRun(None, (), 0)


def lock_threads(
    tx: Transaction, numbers: Collection[int], *more: Query
) -> tuple[dict[int, StoredThread], list[list[Row]]]:
    """Lock and return the threads of this namespace among these numbers; also the answers to other queries.

    They are locked in the order of their numbers, so that two transactions never wait for each other.
    """
    queries: list[Query] = []
    for number in sorted(set(numbers)):
        if 1 <= number <= MAX_THREAD:
            queries.append(("lock_thread", (number,)))  # noqa: PERF401 - one frame less per write
    answers = tx.ask(*queries, *more)
    threads: dict[int, StoredThread] = {}
    for found in answers[: len(queries)]:
        for row in found:
            stored = read_thread(row)
            if stored.namespace == tx.namespace:
                threads[stored.thread_no] = stored
    return threads, answers[len(queries) :]


def lock_run(tx: Transaction, thread: int) -> StoredRun:
    """Lock and return the run of a thread. `Damaged` if its journal is cut short."""
    if not 1 <= thread <= MAX_THREAD:
        return NO_RUN
    return checked_run(tx.namespace, thread, tx.ask(*run_queries(tx, thread)))


def lock_thread_and_run(
    tx: Transaction, thread: int, *more: Query, others: Collection[int] = ()
) -> tuple[dict[int, StoredThread], StoredRun, list[list[Row]]]:
    """Lock and return a thread, with others that are used, then its run; also the answers to other queries."""
    if not 1 <= thread <= MAX_THREAD:
        return {}, NO_RUN, tx.ask(*more)
    queries = run_queries(tx, thread)
    threads, answers = lock_threads(tx, [thread, *others], *queries, *more)
    run = checked_run(tx.namespace, thread, answers[: len(queries)])
    found = threads.get(thread)
    if run.row is None and found is not None and found.name is not None and found.has_run:
        raise missing_run(thread)
    # Both records tell who may write.
    fence = None if run.row is None else rules.fence_of(run.row)
    if found is not None and found.name is not None and found.fence != fence:
        raise rules.damaged(f"the record of the thread with number {thread} does not match its run")
    return threads, run, answers[len(queries) :]


def run_queries(tx: Transaction, thread: int) -> list[Query]:
    """The queries that lock a run, and find the newest entry of its journal."""
    return list(zip(tx.locks_run, repeat((thread,)), strict=False))


def checked_run(namespace: bytes, thread: int, answers: Sequence[list[Row]]) -> StoredRun:
    """The run from the answers to `run_queries`, after checking that its journal ends with the entry it should."""
    if not answers[0] or answers[0][0][1] != namespace:
        return NO_RUN
    columns = answers[0][0][:RUN_COLUMNS]
    newest = answers[-1][0][-1] if answers[-1] else None
    run = StoredRun(read_run(columns), columns, columns[ENTRIES_COLUMN])
    if (newest or 0) & MAX_SEQ != run.last:
        raise cut_journal(thread)
    return run


def missing_run(thread: int) -> Damaged:
    return rules.damaged(f"the run of the thread with number {thread} is missing; nothing was changed")


def cut_journal(thread: int) -> Damaged:
    return rules.damaged(f"the run of the thread with number {thread} does not match its journal")
