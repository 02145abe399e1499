"""Threads of LangGraph graphs: supersteps with the nodes that ran, channels, and the questions that wait for an answer.

Stored values are parsed as plain data. No class that they name is imported, and LangGraph need not be installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import NotFound
from holdfast.handle import Holdfast
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads import scan
from holdfast.threads.process import is_dead
from holdfast.threads.scan import thread_named

_NOTE: Final = "$langgraph"
_NEXT: Final = "branch:to:"
_PULLED: Final = "~__pregel_pull, "
_START: Final = "__start__"
_PAGE: Final = 500
_EXT: Final = "$ext"
_PAYLOAD: Final = "payload"


class Question(msgspec.Struct, frozen=True):
    """An interrupt that waits for an answer: `Command(resume={id: answer})` resumes the graph."""

    id: str | None
    node: str
    value: Any


class Superstep(msgspec.Struct, frozen=True):
    """One checkpoint of a graph. `nodes` ran to get there; `failed` are errors of tasks that started from it."""

    id: str
    parent: str | None
    seq: int
    step: int | None
    source: str
    nodes: tuple[str, ...]
    failed: tuple[str, ...]


class GraphThread(msgspec.Struct, frozen=True):
    """A thread of a graph. `steps` are its supersteps, newest first; `channels` is its state.

    `next` are the nodes that run next. `status` is "running" while an invocation is alive, "waiting" if questions are
    open, "failed" after an error, "interrupted" if nodes are still to be run, and else "idle". `tools` is the thread
    with the journal of its tools, if it has one; `namespaces` are the threads of its subgraphs.
    """

    thread: str
    status: str
    next: tuple[str, ...]
    questions: tuple[Question, ...]
    channels: dict[str, Any]
    steps: tuple[Superstep, ...]
    tools: str | None
    namespaces: tuple[str, ...]


def is_graph(hf: Holdfast, name: str) -> bool:
    """Whether LangGraph wrote a thread."""
    head = hf.context.store.head(name)
    return head is not None and _NOTE in _metadata(head.row.meta)


def graph_thread(hf: Holdfast, name: str) -> GraphThread:
    """Decode a thread of a graph. NotFound if LangGraph did not write such a thread."""
    hf.context.check_open()
    store = hf.context.store
    head = store.head(name)
    if head is None or _NOTE not in _metadata(head.row.meta):
        raise NotFound(f"there is no thread {quoted(name)} of a LangGraph graph")
    number = head.thread.position.thread
    writes = _writes(store, number)
    steps = tuple(_steps(store, number, writes))
    latest = _id(_metadata(head.row.meta)[_NOTE][0])
    state = hf.thread(name).load("@-1").state
    open_writes = writes.get(latest or "", [])
    questions = tuple(_questions(open_writes))
    following = tuple(sorted(key.removeprefix(_NEXT) for key in state if key.startswith(_NEXT)))
    if _START in state and not following:
        following = (_START,)
    failed = any(channel == "__error__" for _, _, channel, _ in _each(open_writes))
    tools = f"{name}%tools"
    return GraphThread(
        thread=name,
        status=_status(store.run(number), questions, failed, following),
        next=following,
        questions=questions,
        channels={key: plain(value) for key, value in state.items() if not key.startswith(("$", _NEXT))},
        steps=steps,
        tools=tools if thread_named(store, tools) is not None else None,
        namespaces=tuple(row.name for row in store.threads(prefix=f"{name}#", after=None, limit=_PAGE)),
    )


def _status(run: RunRow | None, questions: tuple[Question, ...], failed: bool, following: tuple[str, ...]) -> str:
    if run is not None and run.owner is not None and not is_dead(run.owner):
        return "running"
    if questions:
        return "waiting"
    if failed:
        return "failed"
    return "interrupted" if following else "idle"


def _steps(store: Store, number: int, writes: dict[str, list[Entry]]) -> Iterator[Superstep]:
    before: int | None = None
    while page := store.checkpoints(number, before=before, limit=_PAGE):
        for row in page:
            said = _metadata(row.meta)
            note = said.get(_NOTE)
            if type(note) is not list or len(note) < 2 or note[0] is None:
                continue
            id, parent = _id(note[0]), _id(note[1])
            step = said.get("step")
            errors = [
                str(plain(value)) for _, _, channel, value in _each(writes.get(id or "", [])) if channel == "__error__"
            ]
            yield Superstep(
                id=id or "",
                parent=parent,
                seq=row.seq,
                step=step if type(step) is int else None,
                source=str(said.get("source") or ""),
                nodes=tuple(dict.fromkeys(node for node, *_ in _each(writes.get(parent or "", [])) if node)),
                failed=tuple(errors),
            )
        before = page[-1].seq


def _questions(entries: list[Entry]) -> Iterator[Question]:
    """The interrupts of tasks that have not written a result since."""
    done = {entry.key for entry in entries for index, *_ in _content(entry) if index >= 0}
    for entry in entries:
        for _, channel, value in _content(entry):
            if channel != "__interrupt__" or entry.key in done:
                continue
            for each in value if type(value) is list else [value]:
                said = plain(each)
                fields: dict[str, Any] = said if type(said) is dict and "value" in said else {"value": said}
                yield Question(fields.get("id"), _node(entry), fields["value"])


def _each(entries: list[Entry]) -> Iterator[tuple[str, int, str, Any]]:
    """The node, the index, the channel and the value of each write."""
    for entry in entries:
        for index, channel, value in _content(entry):
            yield _node(entry), index, channel, value


def _node(entry: Entry) -> str:
    return entry.name.removeprefix(_PULLED) if entry.name.startswith(_PULLED) else ""


def _content(entry: Entry) -> list[Any]:
    found = msgpack.decode(entry.result) if entry.result else []
    return found if type(found) is list else []


def _writes(store: Store, number: int) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in scan.entries(store, number):
        if entry.kind == "write" and entry.topic is not None:
            found.setdefault(entry.topic, []).append(entry)
    return found


def _metadata(meta: bytes) -> dict[str, Any]:
    encoded = msgspec.msgpack.decode(meta, type=metas.Meta).metadata
    found = msgpack.decode(encoded) if encoded else {}
    return found if type(found) is dict else {}


def _id(part: Any) -> str | None:
    return None if part is None else str(part)


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
