"""Checkpoints of a graph: a namespace of a LangGraph thread is a Holdfast thread, a superstep is a checkpoint."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from msgspec.structs import replace

from holdfast.adapters.langgraph.checkpoint_format import (
    AGENT,
    BRANCH,
    CHECKPOINT,
    HISTORY,
    START,
    TASKS,
    Note,
    checkpoint_id_of,
    config_of,
    is_state_graph,
    key_of,
    metadata_of,
    new_note,
    next_nodes,
    note_of,
    packed,
    plain_metadata,
    stored_metadata,
    thread_name,
    unpacked,
)
from holdfast.adapters.langgraph.graph_schema import Schema
from holdfast.adapters.langgraph.messages import (
    MessageCache,
    MessageList,
    StoredValue,
    are_messages,
    redacted,
)
from holdfast.adapters.langgraph.serde import Values
from holdfast.adapters.langgraph.stored import (
    UNCHANGED,
    GraphHead,
    LatestReaders,
    Left,
    Overtaken,
    Put,
    Stored,
    has_grown,
    same_versions,
    state_of,
)
from holdfast.adapters.langgraph.writes import COPIED, WriteJournal, content_of, entry_of, idle_run, merged, shortened
from holdfast.codec import msgpack
from holdfast.delta.hints import Kept
from holdfast.delta.load import CellReader, load_base
from holdfast.errors import AlreadyExists, Conflict, Damaged, InvalidArgument
from holdfast.redaction import AS_IS, Redaction
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.branches import Placer
from holdfast.threads.context import MAX_RETRIES, Context
from holdfast.threads.metadata import checked_details
from holdfast.types import Status

T = TypeVar("T")

_STEP_MAX: Final = 1 << 62
_NEW: Final = {"source": "new", "step": -2}
"""The metadata of the first row of a thread that is created before its first checkpoint is there."""

_STORED_MAX: Final = 256  # checkpoints of a thread that are cached …
_SMALL: Final = 32_768  # … if their states take no more bytes …
_STORED_BYTES: Final = 524_288  # … and together no more than these


class GraphThread:
    """One namespace of a LangGraph thread. Call methods with an underscore with the lock held."""

    def __init__(
        self,
        context: Context,
        thread_id: str,
        namespace: str,
        messages: MessageCache,
        schema: Schema,
        readers: LatestReaders,
    ) -> None:
        self.thread_id: Final = thread_id
        self.namespace: Final = namespace
        self.placer: Final = Placer(context, thread_name(thread_id, namespace))
        self.name: Final = self.placer.name
        self.lock: Final = self.placer.lock
        self.journal: Final = WriteJournal(context, self.lock)
        self.readers: Final = readers
        self.is_held = False  # whether an invocation of this process holds the thread
        self._messages = messages
        self._schema = schema
        self._head: GraphHead | None = None
        self._index: dict[str, Note] = {}
        self._indexed = 0, 0  # the number of the thread, and the newest row in the index
        self._stored: OrderedDict[int, Stored] = OrderedDict()
        self._stored_bytes = 0
        self._latest: Stored | None = None
        self.seed: tuple[tuple[int, int, str], StoredValue] | None = None  # the last one that a history started from

    @property
    def store(self) -> Store:
        return self.placer.context.store

    @property
    def size(self) -> int:
        """About how many bytes its states and writes take in memory."""
        latest = self._latest
        return self._stored_bytes + self.journal.size + (0 if latest is None else latest.base.footprint)

    # -- the head ---------------------------------------------------------------------------------------------------

    def look(self) -> GraphHead | None:
        """Read the head from the store. InvalidArgument if the thread was not written by LangGraph."""
        found = self.placer.head()
        if found is None:
            self.forget()
            return None
        known, thread = self._head, found.thread
        if known is not None and known.position == thread.position and known.count == thread.count:
            return known
        if known is None or not has_grown(known, thread):
            self.forget()
        note = note_of(found.row)
        if note is None:
            raise InvalidArgument(
                f"thread {self.name} was not written by LangGraph; nothing was changed. Use another thread_id."
            )
        self._head = GraphHead(thread.position, thread.count, note)
        return self._head

    def forget(self) -> None:
        """Clear what is cached: rows may have been deleted."""
        self._head = self._latest = self.seed = None
        self._index, self._indexed = {}, (0, 0)
        self._stored.clear()
        self._stored_bytes = 0
        self.journal.forget()

    def racing(self, attempt: Callable[[GraphHead | None], T], *, is_reading: bool = False) -> T:
        """Call `attempt` with the last head that was seen, and again if another writer has changed the thread.

        `is_reading`: the head has to be that of now. Rows that were deleted while they were read look damaged, and so
        do cached writes whose checkpoint another process stored anew.
        """
        with self.lock:
            head = self.look() if is_reading else self._head or self.look()
            is_cached = True
            for _ in range(MAX_RETRIES):
                try:
                    return attempt(head)
                except Overtaken as overtaken:
                    raise Conflict(str(overtaken)) from None
                except (Conflict, AlreadyExists):
                    self._head, head = None, self.look()
                except Damaged:
                    self.forget()
                    seen, head = head, self.look()
                    if head == seen and not is_cached:
                        raise
                    is_cached = False
            raise Conflict(
                f"thread {quoted(self.name)} was changed by other writers during each of {MAX_RETRIES} attempts; "
                "nothing was done. Try again."
            )

    # -- reading ----------------------------------------------------------------------------------------------------

    def index(self, head: GraphHead | None) -> dict[str, Note]:
        """The newest row of each checkpoint id, maybe also of rows after the head. Call it with the lock held."""
        if head is None:
            return {}
        number, last = head.position.thread, head.position.last
        if self._indexed[0] != number:
            self._index, self._indexed = {}, (number, 0)
        if self._indexed[1] < last:
            for row in reversed(list(self.placer.rows(number, self._indexed[1]))):
                note = note_of(row)
                if note is not None and note.id is not None:
                    self._index[note.id] = note
            self._indexed = number, last
        return self._index

    def find(self, head: GraphHead | None, id: str | None, cells: CellReader | None = None) -> Stored | None:
        """A checkpoint by its id. Call it with the lock held."""
        if head is None or id is None:
            return None
        note = head.note if head.note.id == id else self.index(head).get(id)
        return None if note is None else self.stored(head, note, cells)

    def stored(self, head: GraphHead, note: Note, cells: CellReader | None = None) -> Stored | None:
        """The checkpoint of a note; None if it was deleted."""
        number = head.position.thread
        known = self._stored.get(note.seq)
        if known is not None:
            return known
        if note.seq == head.position.head and note.row.skeleton:
            if self._latest is None or self._latest.row is not note.row:
                self._keep(self._latest)
                self._latest = Stored(self.store, number, note, self.placer.base(number, note.row))
            return self._latest
        row = self.placer.row(number, note.seq)
        if row is None:
            return None
        found = Stored(self.store, number, replace(note, row=row), load_base(cells or self.store, number, row))
        self._keep(found)
        return found

    def _keep(self, stored: Stored | None) -> None:
        """Keep a checkpoint of a small state."""
        if stored is None or stored.base.footprint > _SMALL or stored.row.seq in self._stored:
            return
        self._stored[stored.row.seq] = stored
        self._stored_bytes += stored.base.footprint
        while len(self._stored) > _STORED_MAX or self._stored_bytes > _STORED_BYTES:
            self._stored_bytes -= self._stored.popitem(last=False)[1].base.footprint

    def writes(self, head: GraphHead, stored: Stored, id: str) -> list[Entry]:
        """The journal entries of a checkpoint. Call it with the lock held.

        The first checkpoint of a fork has its writes in the journal of the thread that it was forked from.
        """
        own = self.journal.of(head.position.thread, id)
        for entry in own:
            if entry.result is None and self.look() != head:
                raise Conflict(f"thread {quoted(self.name)}: a checkpoint was deleted while it was read")
        parent = stored.row.parent
        if parent is None or not parent[0] or any(entry.key == COPIED for entry in own):
            return own
        made = stored.created_at
        before = WriteJournal(self.placer.context, self.lock).of(parent[0], id)
        return [entry for entry in before if entry.started_at <= made and entry.result is not None] + own

    def get(self, values: Values, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the latest."""
        said: Mapping[str, Any] = config.get("configurable", {})
        asked, thread_id = said.get("checkpoint_id") or None, said.get("thread_id")

        def read(head: GraphHead | None) -> CheckpointTuple | None:
            latest = None if head is None else head.note.id
            if asked is None:
                self.readers.note(config, latest)
            if head is None or latest is None:
                return None
            self.journal.look(head.position.thread)
            stored = self.find(head, asked or latest)
            return None if stored is None else self.tuple_of(values, head, stored, thread_id)

        return self.racing(read, is_reading=True)

    def tuple_of(self, values: Values, head: GraphHead, stored: Stored, thread_id: Any) -> CheckpointTuple:
        """A checkpoint as LangGraph gets it. Call it with the lock held."""
        note, namespace = stored.note, self.namespace
        if note.id is None:
            raise Damaged(f"checkpoint {note.seq} does not have the form of a LangGraph checkpoint")
        entries = self.writes(head, stored, note.id)
        writes = merged(entries, lambda: stored) if entries else []
        metadata = metadata_of(note)
        checkpoint = unpacked(stored.plain(CHECKPOINT), note.id, self._values(values, stored))
        if self._schema.is_used and not self._schema.is_current(metadata):
            checkpoint = self._schema.migrated(checkpoint, metadata)
        return CheckpointTuple(
            config=config_of(thread_id, namespace, note.id),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=None if note.parent is None else config_of(thread_id, namespace, note.parent),
            pending_writes=[
                (write.task, write.channel, write.value.load(values, f"writes.{write.channel}")) for write in writes
            ],
        )

    def _values(self, values: Values, stored: Stored) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for channel in stored.channels:
            part = stored.lists.get(key_of(channel)) if values.is_plain else None
            if part is not None:
                found[channel] = self._messages.decode(values, self.store, stored.number, part, channel)
            else:
                found[channel] = values.from_plain(stored.value(channel), channel)
        return found

    # -- put --------------------------------------------------------------------------------------------------------

    def take(
        self,
        values: Values,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Put:
        """Copy a checkpoint. Unsupported if it contains a value that cannot be stored."""
        id, parent, versions = checkpoint["id"], checkpoint_id_of(config), checkpoint["channel_versions"]
        if type(id) is not str or not id:
            raise InvalidArgument("a checkpoint's id must be a non-empty string")
        given = checkpoint["channel_values"]
        said = {**get_checkpoint_metadata(config, metadata)}
        if self._schema.is_used:
            said |= self._schema.stamp(said)
        before = self._before(parent)
        if self._schema.is_used and before is not None and not self._schema.is_current(metadata_of(before.note)):
            new_versions = versions  # its values were changed when it was read
        same = same_versions(before, versions, new_versions)
        taken: dict[str, Any] = {
            key_of(channel): UNCHANGED if channel in same else self._taken(values, channel, value, before)
            for channel, value in given.items()
        }
        taken |= {key_of(channel): UNCHANGED for channel in versions if channel in same and channel not in given}
        absent = [
            channel
            for channel in versions
            if key_of(channel) not in taken and channel != START and not channel.startswith(BRANCH)
        ]
        following = next_nodes(taken)
        if taken.get(TASKS) is UNCHANGED and before is not None:
            following = [*dict.fromkeys((*following, *next_nodes({TASKS: before.value(TASKS)})))]
        is_last = not following and is_state_graph(versions)
        return Put(id, parent, taken, {**versions}, packed(checkpoint), said, absent, following, is_last)

    def _before(self, parent: str | None) -> Stored | None:
        """The parent of a new checkpoint. It is mostly the head: then an event loop does not wait for the lock."""
        latest = self._latest
        if parent is None or (latest is not None and latest.note.id == parent):
            return None if parent is None else latest
        with self.lock:
            return self.find(self._head or self.look(), parent)

    def _taken(self, values: Values, channel: str, value: Any, before: Stored | None) -> Any:
        if type(value) is list and value and values.is_plain and are_messages(value):
            known = None if before is None else before.lists.get(key_of(channel))
            number = 0 if before is None else before.number
            taken = self._messages.to_store(values, value, number, known, channel)
            taken.plain = self._redacted(taken.plain)
            return taken
        return self._redacted(values.to_plain(value, channel))

    def _redacted(self, plain: Any) -> Any:
        redaction = self.placer.context.redaction
        return plain if redaction is AS_IS else redacted(redaction, plain)

    def put(self, put: Put, config: RunnableConfig) -> None:
        """Store a checkpoint. Conflict if another writer has continued from the checkpoint that this one is at."""
        self.racing(lambda head: self._put(head, put, config))

    def _put(self, head: GraphHead | None, put: Put, config: RunnableConfig) -> None:
        latest = None if head is None or head.note.id is None else head.note.id
        if self.readers.is_overtaken(config, put.parent, latest):
            done = "deleted the thread" if latest is None else "continued from the same checkpoint"
            raise Overtaken(
                f"thread {quoted(self.name)}: another writer has {done} meanwhile; nothing was stored. "
                "Invoke the graph again to start from the latest checkpoint."
            )
        parent = self.find(head, put.parent)
        under = parent
        if under is None and head is not None:
            under = self.stored(head, head.note)
        if latest is not None and put.id <= latest and head is not None:
            self._complete_writes(head, put.id)
        state = state_of(self.store, put, parent, under)
        status: Status = "completed" if put.is_last else "running" if put.next else "idle"
        note = new_note(put.id, put.parent, put.next, put.absent)
        placed, stored = self._place(head, state, put.metadata, note, under, status, versions=put.versions)
        for key, part in stored.lists.items():
            value = put.values.get(key)
            if isinstance(value, MessageList):
                self._messages.stored(stored.number, part, value)
        if head is not None and latest is not None and put.id < latest and put.parent != latest:
            # The checkpoint with the largest id stays the latest, unless this one follows it.
            self.point(placed, head.note)
            self.readers.forget(config)
        else:
            self.readers.stored(config, put.id)

    def _place(
        self,
        head: GraphHead | None,
        state: Mapping[str, Any],
        metadata: Mapping[str, Any],
        note: Note,
        under: Stored | None,
        status: Status = "idle",
        run: RunRow | None = None,
        versions: ChannelVersions | None = None,
    ) -> tuple[GraphHead, Stored]:
        """Store a row and make it the head. Conflict if the thread is not at the position of `head`."""
        step = metadata.get("step")
        note = replace(note, metadata=plain_metadata(metadata, self.placer.context.redaction))
        details = checked_details(
            AS_IS,
            # LangGraph counts from -1.
            step=step + 1 if type(step) is int and -1 <= step < _STEP_MAX else None,
            metadata=stored_metadata(note),
            status=status,
            trigger=str(metadata.get("source") or "put"),
            agent=AGENT,
        )
        self._head, before = None, head
        position, row, base = self.placer.place(
            dict(state),
            details,
            expect=None if head is None else head.position,
            under=None if under is None else under.row,
            base=None if under is None else under.base,
            run=(run or idle_run()) if head is None else None,
        )
        note = replace(note, seq=row.seq, row=row)
        placed = self._head = GraphHead(position, 1 if before is None else before.count + 1, note)
        if self._indexed == (position.thread, position.last - 1):
            if note.id is not None:
                self._index[note.id] = note
            self._indexed = position.thread, position.last
        self._keep(self._latest)
        self._latest = Stored(self.store, position.thread, note, base, versions)
        return placed, self._latest

    def empty(self, head: GraphHead | None) -> GraphHead:
        """Store a row without a checkpoint. Call it with the lock held."""
        return self._place(head, {CHECKPOINT: None}, _NEW, new_note(), None)[0]

    def put_again(
        self, head: GraphHead, stored: Stored, history: dict[str, Any], note: Note, metadata: Mapping[str, Any]
    ) -> GraphHead:
        """Store the values of a checkpoint again, with another note and metadata. Call it with the lock held."""
        state: dict[str, Any] = {key: Kept(part) for key, part in stored.parts.items()}
        if history:
            state[HISTORY] = history
        return self._place(head, state, metadata, note, stored, metas.decode(stored.row).status)[0]

    def point(self, head: GraphHead, note: Note) -> GraphHead:
        """Make an earlier row the head. Call it with the lock held."""
        row = note.row if note.row.skeleton else self.placer.row(head.position.thread, note.seq)
        if row is None:
            raise Conflict(f"thread {quoted(self.name)}: a checkpoint was deleted meanwhile; nothing was changed")
        self._head = None
        position = self.placer.point(head.position, row)
        self._head = GraphHead(position, head.count, replace(note, row=row))
        return self._head

    # -- writes -----------------------------------------------------------------------------------------------------

    def entry(
        self,
        values: Values,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> Entry:
        """Copy the writes of a task. Unsupported if a value cannot be stored."""
        checkpoint, latest = checkpoint_id_of(config), self._latest
        if checkpoint is None:
            raise InvalidArgument("the config has no checkpoint_id; writes belong to a checkpoint")
        # Messages are looked for only in the latest checkpoint: an event loop must not wait for the lock.
        is_latest = latest is not None and latest.note.id == checkpoint and values.is_plain
        lists = latest.lists if latest is not None and is_latest else {}
        redaction = self.placer.context.redaction
        taken: list[Any] = []
        for at, (channel, value) in enumerate(writes):
            left: list[Left] = []
            short = shortened(value, partial(self._found, latest), left) if latest is not None and lists else value
            if left and redaction is not AS_IS and _is_changed(redaction, left):
                short, left = value, []  # a path must neither contain a secret nor miss its list
            plain = values.to_plain(short, f"writes.{channel}")
            plain = plain if redaction is AS_IS else redacted(redaction, plain)
            taken.append([WRITES_IDX_MAP.get(channel, at), channel, plain, *left])
        return entry_of(checkpoint, task_id, task_path, taken)

    def _found(self, stored: Stored, messages: list[Any]) -> tuple[str, int, int] | None:
        """Find messages in the lists of a checkpoint, for `shortened`."""
        key, count = self._messages.found(stored.number, stored.lists, messages)
        return (key, count, stored.checksum(key, count)) if count else None

    def append(self, entry: Entry) -> None:
        """Store the writes of a task. Their checkpoint may not exist yet."""
        self.journal.append(entry, self._number)

    def _complete_writes(self, head: GraphHead, id: str) -> None:
        """Store the writes of a checkpoint that is about to be stored anew without references to its messages."""
        stored = self.find(head, id)
        if stored is None:
            return
        self.journal.look(stored.number)
        for entry in self.journal.of(stored.number, id):
            content = content_of(entry)
            if any(left for _, _, _, *left in content or ()):
                whole = [[index, channel, stored.completed(plain, left)] for index, channel, plain, *left in content]
                self.journal.replace(stored.number, [replace(entry, result=msgpack.encode(whole))])

    def create(self, run: RunRow) -> bool:
        """Create the thread with this run and without a checkpoint. False if it exists."""
        with self.lock:
            if self.look() is not None:
                return False
            try:
                self._place(None, {CHECKPOINT: None}, _NEW, new_note(), None, run=run)
            except AlreadyExists:
                return False
            return True

    def known_number(self) -> int | None:
        """The number of the thread; None if it does not exist. It is read if it was not seen before."""
        with self.lock:
            head = self._head or self.look()
        return None if head is None else head.position.thread

    def _number(self, gone: int) -> int:
        head = self._head or self.look()
        if head is not None and head.position.thread == gone:
            self.forget()
            head = self.look()
        if head is None:
            try:
                head = self.empty(None)
            except AlreadyExists:
                head = self.look()
        if head is None:
            raise Conflict(f"thread {quoted(self.name)} was deleted meanwhile; nothing was stored. Try again.")
        return head.position.thread


def _is_changed(redaction: Redaction, left: Sequence[Left]) -> bool:
    """Whether the paths to messages that were left out have keys that are redacted."""
    keys = [step for path, *_ in left for step in path]
    return redaction.value(keys) is not keys
