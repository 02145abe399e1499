"""Search in the messages and states of threads: the text of the head of each thread, newest threads first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.inspect.damage import Readable
from holdfast.inspect.graphs import decoded
from holdfast.inspect.thread_list import Filter, threads
from holdfast.types import Checkpoint

_THREADS: Final = 50  # read at a time
_PER_THREAD: Final = 3  # hits that are returned of one thread
_AROUND: Final = 60  # characters before and after a hit
_NODES_MOST: Final = 200_000  # values that are searched in one state


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A text in a state: its path, and an excerpt around it. `more` counts the other hits in the same thread."""

    thread: str
    checkpoint: str
    step: int
    path: str
    before: str
    match: str
    after: str
    more: int


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    """A page of hits. Pass `after` to search on; it is None at the end. `searched` counts the threads of this page.

    `lost` are messages about threads that could not be read.
    """

    hits: tuple[Hit, ...]
    searched: int
    after: str | None
    lost: tuple[str, ...]


def search(
    hf: Holdfast,
    text: str,
    *,
    after: str | None = None,
    limit: int = 50,
    seconds: float = 1.0,
    redacted: Callable[[Checkpoint], Checkpoint] | None = None,
) -> Hits:
    """Search the newest state of each thread for a text, without case. Stops after `limit` hits or so many seconds.

    In a LangGraph graph, it searches the channels. `redacted` is applied to each checkpoint before it is searched, so
    that redacted text cannot be found.
    """
    if type(text) is not str or not text.strip():
        raise InvalidArgument("enter a text to search for")
    wanted = text.casefold()
    deadline = time.monotonic() + seconds
    hits: list[Hit] = []
    readable = Readable(hf)
    searched = 0
    while True:
        page = threads(hf, Filter(), order="newest", after=after, limit=_THREADS)
        for line in page.threads:
            with suppress(NotFound):  # dropped meanwhile
                checkpoint = readable.tried(partial(hf.thread(line.name).load, "@-1", partial=True))
                searched += checkpoint is not None
                if checkpoint is not None:
                    checkpoint = decoded(checkpoint)
                    hits += _hits(checkpoint if redacted is None else redacted(checkpoint), wanted)
        after = page.after
        if after is None or len(hits) >= limit or time.monotonic() > deadline:
            return Hits(hits=tuple(hits), searched=searched, after=after, lost=readable.lost)


def _hits(checkpoint: Checkpoint, wanted: str) -> list[Hit]:
    found: list[Hit] = []
    count = 0
    for path, text in _texts(checkpoint.state):
        at = text.casefold().find(wanted)
        if at < 0:
            continue
        count += 1
        if len(found) < _PER_THREAD:
            end = at + len(wanted)  # a case fold can change the length, which only moves the excerpt
            found.append(
                Hit(
                    thread=checkpoint.thread,
                    checkpoint=checkpoint.id,
                    step=checkpoint.step,
                    path=path,
                    before=("…" if at > _AROUND else "") + text[max(at - _AROUND, 0) : at],
                    match=text[at:end],
                    after=text[end : end + _AROUND] + ("…" if len(text) > end + _AROUND else ""),
                    more=0,
                )
            )
    return [msgspec.structs.replace(hit, more=count - len(found)) for hit in found]


def _texts(state: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a state with their paths: strings, and keys of dicts."""
    todo: list[tuple[str, Any]] = [("$", state)]
    left = _NODES_MOST
    while todo and left:
        left -= 1
        path, value = todo.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            items = [(f"{path}.{key}", key, item) for key, item in value.items()]
            yield from ((at, key) for at, key, _ in items if isinstance(key, str))
            todo += [(at, item) for at, _, item in reversed(items)]
        elif isinstance(value, list | tuple | set | frozenset):
            todo += [(f"{path}[{index}]", item) for index, item in reversed(list(enumerate(value)))]
