"""Databases to import, written by LangGraph's own savers with graphs as people write them."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from psycopg.sql import SQL, Identifier

from tests.adapters.langgraph import graphs
from tests.stores.postgres.server import database

Saver = BaseCheckpointSaver[Any]


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def _talk(graph: Any, thread: str) -> None:
    for number in range(3):
        graph.invoke({"messages": [HumanMessage(f"question {number}", id=f"q-{number}")]}, config(thread))


def _fork(graph: Any, thread: str) -> None:
    """Two turns, and another second one from the first."""
    _talk(graph, thread)
    earlier = [*graph.get_state_history(config(thread))][4]
    graph.update_state(earlier.config, {"messages": [HumanMessage("otherwise", id="o")]}, as_node="__start__")
    graph.invoke(None, config(thread))


def _count(graph: Any, thread: str) -> None:
    graph.invoke({"number": 3}, config(thread))


def _ask(graph: Any, thread: str) -> None:
    """Questions of which one is answered."""
    graph.invoke({"number": 3}, config(thread))
    [first, *_] = [each for task in graph.get_state(config(thread)).tasks for each in task.interrupts]
    graph.invoke(Command(resume={first.id: "yes"}), config(thread))


def _fail(graph: Any, thread: str) -> None:
    with suppress(ValueError):
        graph.invoke({"number": 3}, config(thread))


def _turns(graph: Any, thread: str) -> None:
    for turn in range(6):
        graph.invoke({"turn": turn}, config(thread))


def _work(graph: Any, thread: str) -> None:
    graph.invoke(2, config(thread))


THREADS: dict[str, tuple[Callable[[Saver], Any], Callable[[Any, str], None]]] = {
    "chat": (graphs.chat, _talk),
    "forked": (graphs.chat, _fork),
    "react": (graphs.react, _talk),
    "agent": (graphs.agent, _talk),
    "sends": (graphs.map_reduce, _count),
    "sub#graph%": (graphs.with_subgraph(remembers=True), _count),
    "subgraph each time": (graphs.with_subgraph(remembers=False), _count),
    "asks": (graphs.asking, _ask),
    "fails": (graphs.failing, _fail),
    "files": (graphs.files, _turns),
    "delta": (graphs.delta(4), _turns),
    "7": (graphs.functional, _work),
}
"""Threads by name: their graph, and what is done with it."""


def play(saver: Saver, *threads: str) -> None:
    """Fill a database, with all threads or these."""
    for name in threads or THREADS:
        script = THREADS[name][1]
        script(graph_of(name, saver), name)


def graph_of(thread: str, saver: Saver) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # create_react_agent is old, and in use
        return THREADS[thread][0](saver)


def write_sqlite(path: Path, *threads: str) -> None:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        play(saver, *threads)


@contextmanager
def sqlite_saver(path: Path) -> Generator[Saver]:
    """The saver on a database that was imported from; it may change it."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        yield saver


@contextmanager
def postgres_schema() -> Generator[str]:
    """The address of a database of its own."""
    name = f"t_{uuid4().hex[:20]}"
    url = database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
        yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"
        connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(name)))


@contextmanager
def postgres_saver(url: str) -> Generator[Saver]:
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        yield saver


def tuples(saver: Saver, thread: str) -> list[CheckpointTuple]:
    """Every checkpoint of a thread, in all namespaces."""

    def place(each: CheckpointTuple) -> tuple[str, str]:
        return each.config.get("configurable", {})["checkpoint_ns"], each.checkpoint["id"]

    return sorted(saver.list(config(thread)), key=place)


def put_values(saver: Saver, values: dict[str, Any], thread: str = "t") -> None:
    """A checkpoint with these values, and each of them as a write."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    versions = dict.fromkeys(values, f"{1:032}.{2:016}")
    checkpoint["channel_versions"] = {**versions}
    given: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    where = saver.put(given, checkpoint, {"source": "input", "step": -1}, {**versions})
    saver.put_writes(where, [*values.items()], "task", "~path")
    saver.put_writes(where, [("__error__", "failed"), ("__resume__", [1])], "task", "~path")


def edit(path: Path, sql: str, *given: Any) -> None:
    """Change a SQLite database behind the saver's back."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql, given)
        connection.commit()
