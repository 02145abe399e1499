"""Encode threads, checkpoints, runs and journal entries as database rows, with checksums that detect damage."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import msgspec
from msgspec.structs import replace

from holdfast.errors import Damaged, InvalidArgument, TooLarge
from holdfast.stores import rules, segments
from holdfast.stores.contract import NO_REFS, CheckpointRow, Commit, Position, Refs, Summary, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.stores.segments import MAX_SEQ, MAX_THREAD, SEQ_BITS, key
from holdfast.text import escaped, quoted, unescaped
from holdfast.types import UNREADABLE

T = TypeVar("T")

_CHECKSUM: Final = struct.Struct("<I")
_LARGEST: Final = 1 << 63  # numbers in a column are below this
_PLAIN: Final = b"\0"
_ESCAPED: Final = b"\1"

# The checksum of a row is `crc32(_encode(fields))`: msgpack has the type and the length of each field. It is written
# out each time, because a call would take longer than the checksum itself.

_encode = msgspec.msgpack.Encoder().encode


def to_bytes(text: str) -> bytes:
    """Any str as bytes that sort like its code points. Lone surrogates are allowed."""
    return text.encode("utf-8", "surrogatepass")


def to_text(stored: bytes) -> str:
    """The inverse of `to_bytes`. `Damaged` if the bytes are not valid."""
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Damaged("a stored text is not UTF-8") from error


def packed(record: msgspec.Struct | tuple[object, ...]) -> bytes:
    """A record in msgpack, after a byte that says whether its texts are escaped.

    `InvalidArgument` if a number does not fit 64 bits.
    """
    try:
        return _PLAIN + _encode(record)
    except UnicodeEncodeError:
        # Lone surrogates, for example from a file name in an error message. They are rare; other records skip this.
        return _ESCAPED + _encode(escaped(record))
    except OverflowError as error:
        raise too_large() from error


def unpacked(data: bytes, decode: Callable[[bytes], T]) -> T:
    """The record that `packed` packed."""
    record = decode(data[1:])
    return unescaped(record) if data[:1] == _ESCAPED else record


def too_large() -> InvalidArgument:
    return InvalidArgument("a number in a record does not fit 64 bits; nothing was stored")


def whole_number(value: object) -> int:
    """A number from a row without a checksum. `Damaged` if it has another type: the row is from another table."""
    if type(value) is not int:
        raise rules.damaged("a row of the database has a field of the wrong type")
    return value


def name_digest(namespace: bytes, name: bytes) -> bytes:
    """A digest that finds a thread without the index on names."""
    return hashlib.sha256(b"%d:%b%d:%b" % (len(namespace), namespace, len(name), name)).digest()[:16]


# -- threads --------------------------------------------------------------------------------------------------------

THREAD_COLUMNS: Final = 17


class StoredThread(msgspec.Struct, array_like=True, gc=False):
    """A row of the table `thread`, in the order of its columns, without the checksum."""

    thread_no: int
    namespace: bytes
    name: bytes | None
    name_digest: bytes | None
    head: int
    move: int
    last: int
    deleted: int
    deleted_checksum: int
    head_id: bytes
    fence: int | None
    step: int
    status: bytes
    agent: bytes | None
    size: int
    updated_at: int

    def checksum(self) -> int:
        """The checksum of all columns but the digest of the name and the number of deleted checkpoints."""
        fields = msgspec.structs.astuple(self)
        return crc32(_encode((*fields[:3], *fields[4:7], *fields[9:])))

    def columns(self) -> tuple[Any, ...]:
        """The whole row."""
        return *msgspec.structs.astuple(self), self.checksum()

    def changes(self) -> tuple[Any, ...]:
        """The number, and the columns that a write may change, but for the number of deleted checkpoints."""
        fields = msgspec.structs.astuple(self)
        return self.thread_no, *fields[4:7], *fields[9:], self.checksum()

    def add_deleted(self, count: int) -> None:
        """Count deleted checkpoints. A save does not know their number, so the number has a checksum of its own."""
        has_run = self.has_run
        self.deleted += count
        self.deleted_checksum = crc32(_encode((self.thread_no, self.deleted)))
        if has_run:
            self.add_run()

    def add_run(self) -> None:
        """Record that the thread has a run, completed or not, so that a missing run is noticed.

        This is part of the checksum of a column that saves neither know nor change.
        """
        self.deleted_checksum = crc32(_encode((self.thread_no, self.deleted, True)))

    @property
    def has_run(self) -> bool:
        """Whether a run was stored for the thread. Runs are never removed while their thread exists."""
        return self.deleted_checksum == crc32(_encode((self.thread_no, self.deleted, True)))

    def show(self, summary: Summary) -> None:
        """Copy the fields that listings show."""
        self.step = summary.step
        self.status = to_bytes(summary.status)
        self.agent = None if summary.agent is None else to_bytes(summary.agent)
        self.size = summary.size
        self.updated_at = summary.updated_at

    def show_run(self, run: RunRow) -> None:
        """Copy the status and fence of the thread's run."""
        self.status, self.updated_at, self.fence = to_bytes(run.status), run.updated_at, rules.fence_of(run)

    def advance(self, commit: Commit) -> None:
        """Make a commit the head."""
        row = commit.row
        self.head, self.move, self.last = row.seq, row.move, row.seq
        self.head_id = row.id
        self.show(commit.summary)
        if commit.run is not None:
            self.fence = rules.fence_of(commit.run)

    def position(self) -> Position:
        return Position(self.thread_no, self.head, self.move, self.last)

    @property
    def shown(self) -> str:
        """The thread in a message: its name, or its number if it has none."""
        if self.name is None:
            return f"the thread with number {self.thread_no}"
        return f"thread {quoted(to_text(self.name))}"

    def record(self) -> ThreadRow:
        if self.name is None:
            raise Damaged(f"the thread with number {self.thread_no} was dropped but is still listed")
        return ThreadRow(
            name=to_text(self.name),
            position=self.position(),
            head_id=self.head_id,
            count=self.last - self.deleted,
            summary=Summary(
                step=self.step,
                status=to_text(self.status),
                agent=None if self.agent is None else to_text(self.agent),
                size=self.size,
                updated_at=self.updated_at,
            ),
        )

    def disagreeing(self, newest: int | None) -> Damaged:
        """The error for a thread whose newest checkpoint, by row key, is not the `last` of this row.

        The error carries the content of this row, without the head if checkpoints were stored after it.
        """
        damage = rules.damaged(f"the record of {self.shown} does not match its checkpoints")
        position = self.position()
        if newest is not None and newest > key(self.thread_no, self.last):
            position = replace(position, head=0)
        damage.known = replace(self.record(), position=position)
        return damage


def read_thread(row: Sequence[Any]) -> StoredThread:
    """A selected thread, verified. `Damaged` if the row is not what was written."""
    try:
        thread = msgspec.convert(row[: THREAD_COLUMNS - 1], StoredThread)
    except msgspec.ValidationError as error:
        raise Damaged("the record of a thread has a field of the wrong type") from error
    if thread.checksum() != row[THREAD_COLUMNS - 1]:
        raise Damaged(f"the record of the thread with number {thread.thread_no} does not match its checksum")
    number, deleted, checksum = thread.thread_no, thread.deleted, thread.deleted_checksum
    if checksum != crc32(_encode((number, deleted))) and checksum != crc32(_encode((number, deleted, True))):
        raise Damaged(f"the number of deleted checkpoints of the thread with number {thread.thread_no} is damaged")
    if not 0 <= thread.head <= thread.last <= MAX_SEQ or not 0 <= thread.deleted <= thread.last:
        raise Damaged(f"the record of the thread with number {thread.thread_no} contradicts itself")
    return thread


def new_thread(number: int, namespace: bytes, commit: Commit) -> StoredThread:
    """The row of the thread that a commit creates."""
    name = to_bytes(commit.name)
    digest = name_digest(namespace, name)
    thread = StoredThread(number, namespace, name, digest, 0, 0, 0, 0, 0, b"", None, 0, b"", None, 0, 0)
    thread.add_deleted(0)
    if commit.run is not None:
        thread.add_run()
    thread.advance(commit)
    return thread


def advanced(namespace: bytes, commit: Commit, expect: Position) -> tuple[Any, ...]:
    """The parameters of `advance_thread`: the new columns of the thread's row, then the columns it must have now."""
    row, summary = commit.row, commit.summary
    name = to_bytes(commit.name)
    status = to_bytes(summary.status)
    agent = None if summary.agent is None else to_bytes(summary.agent)
    before = commit.fence
    after = before if commit.run is None else rules.fence_of(commit.run)
    shown = (row.id, after, summary.step, status, agent, summary.size, summary.updated_at)
    checksum = crc32(_encode((expect.thread, namespace, name, row.seq, row.move, row.seq, *shown)))
    was = (namespace, name, expect.head, expect.move, expect.last, before)
    return (expect.thread, row.seq, row.move, *shown, checksum, *was)


# -- sweeps ---------------------------------------------------------------------------------------------------------

_DIGEST: Final = 32


def store_sweep(thread: int, state: int, last: int, used: Collection[bytes]) -> tuple[int, int, int, bytes, int]:
    """The columns of a thread's last sweep. `used` are the digests of its blobs."""
    digests = b"".join(sorted(used))
    if len(digests) != len(used) * _DIGEST:
        raise InvalidArgument("a digest of a blob does not have 32 bytes; nothing was recorded")
    return thread, state, last, digests, crc32(_encode((thread, state, last, digests)))


def read_sweep(row: Sequence[Any]) -> list[bytes]:
    """The digests that a sweep recorded; none while the thread is unswept. `Damaged` if they are not as written."""
    *fields, checksum = row
    if checksum is not None and checksum != crc32(_encode(fields)):
        raise Damaged(f"the record of the last sweep of the thread with number {row[0]} does not match its checksum")
    digests = row[3]
    if type(digests) is not bytes:  # the row of another table
        raise Damaged(f"the record of the last sweep of the thread with number {row[0]} cannot be read")
    return [digests[at : at + _DIGEST] for at in range(0, len(digests), _DIGEST)]


# -- checkpoints ----------------------------------------------------------------------------------------------------

# Smaller skeletons are not compressed: a save writes one page either way.
_COMPRESS_SKELETON: Final = 1024
_decode_refs = msgspec.msgpack.Decoder(Refs).decode


class _CheckpointHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The small fields of a checkpoint, packed. `plain` is the size of its skeleton, 0 if that is not compressed."""

    id: bytes
    digest: bytes
    parent: tuple[int, int] | None
    move: int
    refs_checksum: int
    skeleton_checksum: int
    plain: int
    deleted: bool


_decode_head = msgspec.msgpack.Decoder(_CheckpointHead).decode


class StoredCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint's columns, encoded before its row key is known (a new thread gets its number late)."""

    step: int
    label: bytes | None
    head: bytes
    meta: bytes
    refs: bytes
    skeleton: bytes

    def columns(self, row_key: int) -> tuple[Any, ...]:
        """The row without its cells; the column `head` gets the checksum."""
        head = self.head + _CHECKSUM.pack(crc32(_encode((row_key, self.step, self.label, self.head, self.meta))))
        return row_key, self.step, self.label, head, self.meta, self.refs, self.skeleton


def store_checkpoint(row: CheckpointRow) -> StoredCheckpoint:
    """A checkpoint's columns."""
    refs = b"" if row.refs == NO_REFS else _encode(row.refs)
    skeleton = row.skeleton
    plain = 0
    if len(skeleton) >= _COMPRESS_SKELETON:
        compressed = segments.compress(skeleton)
        if compressed is not None:
            plain, skeleton = len(skeleton), compressed
    checksums = crc32(refs), crc32(skeleton)
    head = _CheckpointHead(row.id, row.digest, row.parent, row.move, *checksums, plain, row.deleted)
    label = None if row.label is None else to_bytes(row.label)
    return StoredCheckpoint(row.step, label, _encode(head), row.meta, refs, skeleton)


def read_checkpoint(
    row_key: int,
    step: int,
    label: bytes | None,
    head: bytes,
    meta: bytes,
    refs: bytes | None = None,
    skeleton: bytes | None = None,
    *,
    keep_meta: bool = True,
) -> CheckpointRow:
    """The checkpoint of a selected row. The selected columns are verified; `Damaged` names the seq."""
    if not is_whole_checkpoint(row_key, step, label, head, meta):
        raise _mismatch(row_key)
    try:
        fields = _decode_head(head[: -_CHECKSUM.size])
        if (refs is not None and crc32(refs) != fields.refs_checksum) or (
            skeleton is not None and crc32(skeleton) != fields.skeleton_checksum
        ):
            raise _mismatch(row_key)
        found = _decode_refs(refs) if refs else NO_REFS
    except (TypeError, *UNREADABLE) as error:
        # Column types match the schema unless the type codes in the row itself are damaged.
        raise Damaged(f"{_shown(row_key)} cannot be read") from error
    if skeleton is None:
        skeleton = b""
    elif fields.plain:
        skeleton = segments.decompress(skeleton, fields.plain)
    return CheckpointRow(
        seq=row_key & MAX_SEQ,
        id=fields.id,
        parent=fields.parent,
        step=step,
        move=fields.move,
        digest=fields.digest,
        label=None if label is None else to_text(label),
        meta=meta if keep_meta else b"",
        refs=found,
        skeleton=skeleton,
        deleted=fields.deleted,
    )


def is_whole_checkpoint(row_key: int, step: int, label: bytes | None, head: bytes, meta: bytes) -> bool:
    """Whether the selected columns are as they were written."""
    try:
        checksum = crc32(_encode((row_key, step, label, head[: -_CHECKSUM.size], meta)))
        return _CHECKSUM.pack(checksum) == head[-_CHECKSUM.size :]
    except TypeError:
        return False


def check_listed(page: Sequence[tuple[Any, ...]]) -> None:
    """Verify rows of (row key, step, label, head, metadata, anything). `Damaged` if one is not what was written.

    It makes no function calls, which would take most of the time: stats reads every checkpoint of a store.
    """
    pack, encode, end = _CHECKSUM.pack, _encode, -_CHECKSUM.size
    for row_key, step, label, head, meta, _ in page:
        if type(head) is not bytes or pack(crc32(encode((row_key, step, label, head[:end], meta)))) != head[end:]:
            raise _mismatch(row_key)


def _mismatch(row_key: int) -> Damaged:
    return Damaged(f"{_shown(row_key)} does not match its checksum")


def _shown(row_key: int) -> str:
    return f"checkpoint {row_key & MAX_SEQ} of the thread with number {row_key >> SEQ_BITS}"


def tombstone(row: CheckpointRow) -> StoredCheckpoint:
    """The columns that remain of a deleted checkpoint."""
    return store_checkpoint(replace(row, label=None, meta=b"", refs=NO_REFS, skeleton=b"", deleted=True))


# -- runs -----------------------------------------------------------------------------------------------------------

# thread_no, namespace, status, fence, updated_at, clock, wake_at, wake_wall, handler, rank, ready, lease_until,
# lease_checksum, entries, record, checksum
RUN_COLUMNS: Final = 16
ENTRIES_COLUMN: Final = 13
_LONGEST_HANDLER: Final = 255  # bytes in an index

_decode_run = msgspec.msgpack.Decoder(RunRow).decode


def store_run(namespace: bytes, row: RunRow, entries: int) -> tuple[Any, ...]:
    """The columns of a run. `InvalidArgument` if a number does not fit its column."""
    indexed = _indexed(row)
    numbers = row.fence, row.updated_at, row.wake_at, row.wake_wall, row.lease_until, row.priority
    if min(numbers) < -_LARGEST or max(numbers) >= _LARGEST:
        raise too_large()
    record = packed(replace(row, lease_until=0) if row.lease_until else row)
    lease = lease_checksum(row.thread, row.fence, row.lease_until)
    checksum = crc32(_encode((namespace, record)))
    return row.thread, namespace, *indexed, row.lease_until, lease, entries, record, checksum


def lease_checksum(thread: int, fence: int, until: int) -> int:
    """The checksum of a lease, which a renewal changes without the rest of the row."""
    return crc32(_encode((thread, fence, until)))


def read_run(columns: Sequence[Any]) -> RunRow:
    """The run of a selected row, verified. `Damaged` if the row is not what was written."""
    number, namespace, *indexed, until, lease, _, record, checksum = columns
    leased = crc32(_encode((number, indexed[1], until)))  # `lease_checksum`
    if lease != leased or checksum != crc32(_encode((namespace, record))):
        raise Damaged(f"the run of the thread with number {number} does not match its checksum")
    try:
        run = unpacked(record, _decode_run)
    except (TypeError, *UNREADABLE) as error:
        raise Damaged(f"the run of the thread with number {number} cannot be read") from error
    if (number, *indexed) != (run.thread, *_indexed(run)):
        raise Damaged(f"the run of the thread with number {number} does not match its index columns")
    return replace(run, lease_until=until) if until else run


def _indexed(run: RunRow) -> tuple[Any, ...]:
    """The fields that are columns, too, to find and order runs: from the status to whether it is ready."""
    wake = (run.wake_at, run.wake_wall) if run.wake_at > 0 and rules.is_timed(run) else (0, 0)
    clock = run.clock.encode("utf-8", "surrogatepass")
    has_queue = run.handler is not None or run.agent is not None or run.parent is not None
    name = rules.queue_of(run) if has_queue else None
    handler = None if name is None else handler_column(name)
    ready = int(run.status != "running" and rules.is_ready(run))
    return run.status.encode(), run.fence, run.updated_at, clock, *wake, handler, -run.priority, ready


def handler_column(name: str) -> bytes:
    """The name of a handler in a column with an index. A digest replaces a long one."""
    handler = to_bytes(name)
    return handler if len(handler) <= _LONGEST_HANDLER else hashlib.sha256(handler).digest()


# -- journal entries ------------------------------------------------------------------------------------------------

EntryColumns = tuple[int, bytes, bytes | None]
# row_key, record, topic

_decode_entry = msgspec.msgpack.Decoder(Entry).decode


class EncodedEntries(NamedTuple):
    """Encoded journal entries: new rows, changed rows, and how many bytes they take."""

    new: list[EntryColumns]
    changed: list[EntryColumns]
    weight: int


def store_entries(thread: int, last: int | None, entries: Sequence[Entry]) -> EncodedEntries:
    """Encode journal entries. Those with a number above `last` are new.

    All are checked before any is written, so an error leaves nothing behind. If several replace the same entry, the
    last one counts. Entries with an impossible number are skipped here; `rules.require_entries` refuses them.
    """
    new: list[EntryColumns] = []
    changed: dict[int, EntryColumns] = {}
    weight = 0
    newest = MAX_SEQ if last is None else last
    for entry in entries if 1 <= thread <= MAX_THREAD else ():
        if entry.number > MAX_SEQ:
            if last is None:
                continue
            raise TooLarge("a journal has at most 2**32 - 1 entries; nothing was stored")
        row_key = thread << SEQ_BITS | entry.number
        record = packed(entry)
        record += _CHECKSUM.pack(crc32(_encode((row_key, record))))
        row = row_key, record, None if entry.topic is None else to_bytes(entry.topic)
        weight += len(record)
        if entry.number > newest:
            new.append(row)
        else:
            changed[row_key] = row
    return EncodedEntries(new, list(changed.values()), weight)


def read_entry(row_key: int, record: bytes) -> Entry:
    """The journal entry of a selected row, verified. `Damaged` if the row is not what was written."""
    what = f"journal entry {row_key & MAX_SEQ} of the thread with number {row_key >> SEQ_BITS}"
    try:
        content = record[: -_CHECKSUM.size]
        if _CHECKSUM.pack(crc32(_encode((row_key, content)))) != record[-_CHECKSUM.size :]:
            raise Damaged(f"{what} does not match its checksum")
        entry = unpacked(content, _decode_entry)
    except (TypeError, *UNREADABLE) as error:
        raise Damaged(f"{what} cannot be read") from error
    if entry.number != row_key & MAX_SEQ:
        raise Damaged(f"{what} has another number in its record")  # paging by this number might never end
    return entry


def act_checksum(namespace: bytes, key: bytes, thread: int, number: int) -> int:
    """The checksum of the claim of an act."""
    return crc32(_encode((namespace, key, thread, number)))


def missing_entry(thread: int, number: int) -> Damaged:
    return Damaged(f"journal entry {number} of the thread with number {thread} is missing")


# -- commits --------------------------------------------------------------------------------------------------------


class EncodedCommit(NamedTuple):
    """A commit with everything encoded that can be encoded before the store's lock is taken."""

    commit: Commit
    row: StoredCheckpoint
    cells: bytes | None
    weight: int

    def columns(self, thread: int) -> tuple[Any, ...]:
        """The row of the checkpoint."""
        row_key = thread << SEQ_BITS | self.commit.row.seq
        cells = None if self.cells is None else segments.seal(self.cells, segments.context_of(row_key))
        return *self.row.columns(row_key), cells


def prepare(commit: Commit) -> EncodedCommit:
    """Check, encode and compress a commit. `InvalidArgument` if it contradicts itself."""
    rules.check_form(commit)
    row = commit.row
    if row.seq > MAX_SEQ or row.move > MAX_SEQ:
        raise TooLarge("a thread has at most 2**32 - 1 checkpoints and moves; nothing was stored")
    stored = store_checkpoint(row)
    cells = None
    for append in commit.appends:
        if append.cells:
            cells = segments.draft(commit.appends)
            break
    weight = len(stored.skeleton) + len(row.meta) + (len(cells) if cells else 0)
    if commit.entries:
        weight += sum([len(entry.result or b"") + len(entry.call or b"") for entry in commit.entries])
    return EncodedCommit(commit, stored, cells, weight)
