"""Threads of LangGraph graphs: supersteps with the nodes that ran, channels, and the questions that wait for an answer.

Stored values are parsed as plain data. No class that they name is imported, and LangGraph need not be installed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

import msgspec

from holdfast.codec import msgpack
from holdfast.handle import Holdfast
from holdfast.inspect.damage import Readable
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads import metadata as metas
from holdfast.threads import scan
from holdfast.threads.process import is_dead
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.types import Checkpoint

AGENT: Final = "langgraph"
"""The agent in the metadata of every checkpoint of a graph."""
NOTE: Final = "$langgraph"
TOOLS: Final = "%tools"
BETWEEN: Final = "#"
SENT: Final = "Send"
"""Stands for the node of a Send that is not known."""

GraphStatus = Literal["running", "waiting", "in doubt", "failed", "interrupted", "completed", "idle"]

_PULLED: Final = "~__pregel_pull, "
_PUSHED: Final = "~__pregel_push, "
_TASKS: Final = "__pregel_tasks"
_ERROR: Final = "__error__"
_INTERRUPT: Final = "__interrupt__"
_HIDDEN: Final = ("branch:to:", "join:", _TASKS)
_VALUES: Final = "$values"
_DOUBTS: Final = ("in doubt", "may repeat")
_PAGE: Final = 500
_EXT: Final = "$ext"
_PAYLOAD: Final = "payload"


class Question(msgspec.Struct, frozen=True):
    """An interrupt that waits for an answer: `Command(resume={id: answer})` resumes the graph.

    `effect` is the number of the tool call that it is about, if a call is in doubt or needs approval.
    """

    id: str | None
    node: str
    value: Any
    effect: int | None = None


class GraphState(msgspec.Struct, frozen=True):
    """The status of a graph's thread, without its channels.

    `next` are the nodes that run next, `done` those of them whose results are already stored. `errors` are those of
    the last step. `is_dead`: the process of its last invocation died.
    """

    thread: str
    status: GraphStatus
    next: tuple[str, ...]
    done: tuple[str, ...]
    questions: tuple[Question, ...]
    errors: tuple[str, ...]
    is_dead: bool
    since: datetime


# -- names ------------------------------------------------------------------------------------------------------------


def is_graph(hf: Holdfast, name: str) -> bool:
    """Whether LangGraph wrote a thread."""
    readable = Readable(hf)
    head = readable.store.head(name)
    return head is not None and readable.tried(lambda: _note(head.row)) is not None


def owner_of(store: Store, name: str) -> str:
    """The thread that a reader looks for: that of the graph, if this one has its tool calls or is of a subgraph."""
    root = name.removesuffix(TOOLS) if name.endswith(TOOLS) else name.partition(BETWEEN)[0]
    if root in ("", name):
        return name
    row = thread_named(store, root)
    return root if row is not None and row.summary.agent == AGENT else name


def is_part(store: Store, row: ThreadRow, asked: str) -> bool:
    """Whether a thread belongs to that of a graph, which is shown in its place: its tool calls, or a subgraph.

    False if `asked`, the text that the reader looks for in names, has the marker of such threads.
    """
    if row.name.endswith(TOOLS):
        return TOOLS not in asked and owner_of(store, row.name) != row.name
    return row.summary.agent == AGENT and BETWEEN in row.name and BETWEEN not in asked


def journal_of(hf: Holdfast, name: str) -> str:
    """The thread with the tool calls of a thread: another one only if it is that of a graph."""
    store, tools = hf.context.store, name + TOOLS
    return tools if thread_named(store, tools) is not None and owner_of(store, tools) == name else name


def thread_id_of(name: str) -> str:
    """The thread id of a graph, from the name of its thread."""
    return name.partition(BETWEEN)[0].replace("%23", BETWEEN).replace("%25", "%")


# -- a thread ---------------------------------------------------------------------------------------------------------


def graph_state(store: Store, row: ThreadRow) -> GraphState | None:
    """Return the status of a graph's thread; None if it is not that of a graph."""
    head = store.head(row.name)
    note = None if head is None else _note(head.row)
    if head is None or note is None:
        return None
    id, _, following = note
    number = head.thread.position.thread
    run = store.run(number)
    entries = _entries(store, number, id)
    done = _finished(entries)
    questions = tuple(_questions(entries, done))
    errors = tuple(str(plain(value)) for entry in entries for _, channel, value in _content(entry) if channel == _ERROR)
    nodes = tuple(_nodes(head.row, [entry for entry in entries if entry.key in done]))
    return GraphState(
        thread=row.name,
        status=_status(store, run, questions, errors, following),
        next=following,
        done=nodes,
        questions=questions,
        errors=errors,
        is_dead=run is not None and run.owner is not None and is_dead(run.owner),
        since=metas.moment(max([head.thread.summary.updated_at, *(entry.started_at for entry in entries)])),
    )


def unfinished(readable: Readable) -> Iterator[GraphState]:
    """The graphs that are not completed and that no process runs, without subgraphs and unreadable ones."""
    store = readable.store
    for row in scan.threads(store):
        if row.summary.agent == AGENT and BETWEEN not in row.name:
            state = readable.tried(partial(_unfinished, store, row))
            if state is not None:
                yield state


def _unfinished(store: Store, row: ThreadRow) -> GraphState | None:
    state = graph_state(store, row) if _has_next(store, row) else None
    return None if state is None or state.status in ("running", "completed", "idle") else state


def _has_next(store: Store, row: ThreadRow) -> bool:
    head = checkpoint_at(store, row.position.thread, row.position.head)
    note = None if head is None else _note(head)
    return note is not None and bool(note[2])


def _status(
    store: Store,
    run: RunRow | None,
    questions: tuple[Question, ...],
    errors: tuple[str, ...],
    following: tuple[str, ...],
) -> GraphStatus:
    if questions:
        return "in doubt" if any(each.effect is not None for each in questions) else "waiting"
    if run is not None and run.owner is not None and not is_dead(run.owner):
        clock = store.clock()
        if run.clock == clock.id and not clock.has_reached(run.lease_until):
            return "running"
    if errors:
        return "failed"
    return "interrupted" if following else "completed"


def plan_of(graph: GraphState) -> str:
    """Describe what a resume does."""
    asked = [question.node for question in graph.questions if question.effect is None]
    if asked:
        return f"waits for an answer in {', '.join(dict.fromkeys(asked))}"
    if graph.questions:
        return "waits until the outcome of a tool call is known"
    left = [node for node in graph.next if node not in graph.done]
    stored = f"; the results of {', '.join(graph.done)} are stored" if graph.done else ""
    return f"runs {', '.join(left)}{stored}" if left else f"continues{stored}"


def _questions(entries: list[Entry], done: set[str]) -> Iterator[Question]:
    """The interrupts of tasks that have not written a result since."""
    latest: dict[str, tuple[Entry, Any]] = {}
    for entry in entries:
        for _, channel, value in _content(entry):
            if channel == _INTERRUPT and entry.key not in done:
                latest[entry.key] = entry, value  # the last one of a task counts
    for entry, value in latest.values():
        for each in value if type(value) is list else [value]:
            said = plain(each)
            fields: dict[str, Any] = said if type(said) is dict and "value" in said else {"value": said}
            asked = fields["value"]
            is_doubt = type(asked) is dict and asked.get("question") in _DOUBTS and type(asked.get("effect")) is int
            yield Question(fields.get("id"), _node(entry), asked, asked["effect"] if is_doubt else None)


def _finished(entries: list[Entry]) -> set[str]:
    """The tasks that have written a result."""
    return {entry.key for entry in entries for index, *_ in _content(entry) if index >= 0}


# -- supersteps -------------------------------------------------------------------------------------------------------


def _nodes_before(store: Store, number: int, row: CheckpointRow, parent: CheckpointRow | None) -> list[str]:
    """The nodes that ran to get to a checkpoint."""
    note = _note(row)
    if note is None or note[1] is None or _metadata(row).get("source") in ("input", "fork"):
        return []
    return _nodes(parent, _entries(store, number, note[1]))


def _nodes(row: CheckpointRow | None, entries: list[Entry]) -> list[str]:
    """The nodes of the tasks that wrote these entries, which start from a checkpoint."""
    names = [*dict.fromkeys(node for entry in entries if (node := _node(entry)))]
    if SENT not in names:
        return names
    note = None if row is None else _note(row)
    sent = [] if note is None else [node for node in note[2] if node not in names]
    return [*(name for name in names if name != SENT), *(sent or [SENT])]


def _node(entry: Entry) -> str:
    """The node of a task, by its path. That of a Send is not in the path."""
    if entry.name.startswith(_PULLED):
        return entry.name.removeprefix(_PULLED).partition(",")[0]
    return SENT if entry.name.startswith(_PUSHED) else ""


def shown_steps(
    readable: Readable, thread: ThreadRow, checkpoints: list[Checkpoint]
) -> dict[int, tuple[str, list[Entry]]]:
    """The nodes that ran, and the entries of their tools, of each checkpoint of a graph, newest first, by its seq.

    A row without a LangGraph checkpoint is left out.
    """
    store, number = readable.store, thread.position.thread
    entries = tool_entries(store, thread.name)
    times = [entry.started_at for entry in entries]
    rows = [readable.checkpoint(number, checkpoint.seq) for checkpoint in checkpoints]
    if checkpoints:
        below = readable.checkpoints(thread, before=checkpoints[-1].seq, page=1)
        rows.append(next((row for row, _ in below), None))
    found: dict[int, tuple[str, list[Entry]]] = {}
    for checkpoint, stored, older in zip(checkpoints, rows, rows[1:], strict=False):
        note = None if stored is None else readable.tried(partial(_note, stored))
        if stored is None or note is None or note[0] is None:
            continue
        nodes = readable.tried(partial(_nodes_before, store, number, stored, older)) or []
        before = None if older is None else readable.meta(older)
        since = 0 if before is None else bisect_left(times, before.created_at)
        until = bisect_left(times, metas.microseconds(checkpoint.created_at))
        found[checkpoint.seq] = ", ".join(nodes) or checkpoint.trigger, entries[since:until]
    return found


def tool_entries(store: Store, name: str, since: int = 0) -> list[Entry]:
    """The journal of a graph's tools since a time in microseconds, oldest first."""
    tools = thread_named(store, name + TOOLS)
    rows = [] if tools is None else scan.entries(store, tools.position.thread)
    return sorted((entry for entry in rows if entry.started_at >= since), key=lambda entry: entry.started_at)


# -- values -----------------------------------------------------------------------------------------------------------


def decoded(checkpoint: Checkpoint) -> Checkpoint:
    """A loaded checkpoint as people read it: the channels of a graph as its state. Others are unchanged."""
    metadata: dict[str, Any] = dict(checkpoint.metadata or {})
    if NOTE not in metadata or type(checkpoint.state) is not dict:
        return checkpoint
    del metadata[NOTE]
    return msgspec.structs.replace(checkpoint, state=channels_of(checkpoint.state), metadata=metadata)


def channels_of(state: dict[str, Any]) -> dict[str, Any]:
    """The channels in the stored state of a graph, without those that only LangGraph uses."""
    others = state.get(_VALUES)
    members = {**state, **(others if type(others) is dict else {})}
    found: dict[str, Any] = {}
    for key, value in members.items():
        name = key[1:] if key.startswith("$$") else key
        if not (key.startswith("$") and not key.startswith("$$")) and not name.startswith(_HIDDEN):
            found[name] = plain(value)
    return found


def plain(value: Any) -> Any:
    """A stored value as people read it: the fields of an object instead of its class and its encoding."""
    if type(value) is list:
        return [plain(item) for item in value]
    if type(value) is not dict:
        return value
    if _EXT not in value:
        return {key: plain(item) for key, item in value.items()}
    payload = value.get(_PAYLOAD)
    if value[_EXT] == "dict" and type(payload) is list:
        return {pair[0]: plain(pair[1]) for pair in payload if type(pair) is list and len(pair) == 2}
    if type(payload) is list and len(payload) > 2 and type(payload[0]) is type(payload[1]) is str:
        return plain(payload[2])
    return plain(payload)


# -- records ----------------------------------------------------------------------------------------------------------


def _note(row: CheckpointRow) -> tuple[str | None, str | None, tuple[str, ...]] | None:
    """The id, the parent and the next nodes of a LangGraph checkpoint; None if LangGraph did not write it."""
    match _metadata(row).get(NOTE):
        case [id, parent, [*following], *_]:
            return _text(id), None if type(parent) is list else _text(parent), tuple(map(str, following))
        case _:
            return None


def _metadata(row: CheckpointRow) -> dict[str, Any]:
    encoded = metas.decode(row).metadata
    found = msgpack.decode(encoded) if encoded else {}
    return found if type(found) is dict else {}


def _text(id: Any) -> str | None:
    return None if id is None else str(id)


def _entries(store: Store, number: int, id: str | None) -> list[Entry]:
    """The pending writes of a checkpoint."""
    return [] if id is None else [each for each in scan.entries(store, number, topic=id) if each.kind == "write"]


def _content(entry: Entry) -> list[Any]:
    found = msgpack.decode(entry.result) if entry.result else []
    # A value omits messages that its checkpoint has; the rest of its item, left out here, says which.
    return [each[:3] for each in found] if type(found) is list else []
