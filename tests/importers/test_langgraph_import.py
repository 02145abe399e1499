"""After an import, a graph gets from HoldfastSaver what it got from LangGraph's own saver."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_SINGLE_ARG
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

import holdfast
from holdfast import Holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.importers import import_from
from tests.adapters.langgraph import graphs
from tests.importers.conftest import Origin
from tests.importers.sources import (
    THREADS,
    config,
    graph_of,
    play,
    postgres_saver,
    postgres_schema,
    tuples,
)


def test_every_checkpoint_of_every_namespace_reads_the_same(origin: Origin, hf: Holdfast) -> None:
    report = origin.import_to(hf)

    assert report.ok
    assert report.remarks == ()
    ours = HoldfastSaver(hf)
    count = 0
    with origin.saver() as theirs:
        for thread in THREADS:
            found, expected = tuples(ours, thread), tuples(theirs, thread)
            assert found == expected
            count += len(expected)
        assert sum(1 for _ in ours.list(None)) == count
    assert report.checkpoints == report.checked == count
    assert report.threads == sum(1 for _ in hf.threads())


@pytest.mark.parametrize("thread", THREADS)
def test_the_graph_is_where_it_was(source: Path, tmp_path: Path, thread: str) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        import_from(hf, "langgraph-sqlite", str(source))
        with SqliteSaver.from_conn_string(str(source)) as theirs:
            was, now = graph_of(thread, theirs), graph_of(thread, HoldfastSaver(hf))
            assert now.get_state(config(thread), subgraphs=True) == was.get_state(config(thread), subgraphs=True)
            assert [*now.get_state_history(config(thread))] == [*was.get_state_history(config(thread))]


def test_delta_channels_are_where_they_were_in_postgresql(hf: Holdfast) -> None:
    with postgres_schema() as url, postgres_saver(url) as theirs:
        play(theirs, "delta", "sub#graph%")
        import_from(hf, "langgraph-postgres", url)
        for thread in ("delta", "sub#graph%"):
            was, now = graph_of(thread, theirs), graph_of(thread, HoldfastSaver(hf))
            assert now.get_state(config(thread), subgraphs=True) == was.get_state(config(thread), subgraphs=True)
            assert [*now.get_state_history(config(thread))] == [*was.get_state_history(config(thread))]


def test_the_graph_goes_on(origin: Origin, hf: Holdfast) -> None:
    origin.import_to(hf)

    def go_on(saver: Any) -> list[Any]:
        answers = [graphs.chat(saver).invoke({"messages": [HumanMessage("more", id="m")]}, config("chat"))]
        answers.append(graphs.with_subgraph(remembers=True)(saver).invoke(Command(resume=4), config("sub#graph%")))
        answers.append(
            graphs.with_subgraph(remembers=False)(saver).invoke(Command(resume=4), config("subgraph each time"))
        )
        asked = graphs.asking(saver).get_state(config("asks")).tasks
        [left] = [each for task in asked for each in task.interrupts if not task.result]
        answers.append(graphs.asking(saver).invoke(Command(resume={left.id: "no"}), config("asks"))["log"])
        answers.append(graphs.delta(4)(saver).invoke({"turn": 9}, config("delta")))
        answers.append(graphs.functional(saver).invoke(Command(resume="ok"), config("7")))
        return answers

    with origin.saver() as theirs:
        assert go_on(HoldfastSaver(hf)) == go_on(theirs)


def test_a_source_that_is_in_use_is_read_as_it_is(tmp_path: Path, hf: Holdfast) -> None:
    path = tmp_path / "live.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        play(saver, "chat")
        wal = Path(f"{path}-wal")
        assert wal.stat().st_size > 0
        before = [hashlib.sha256(file.read_bytes()).digest() for file in (path, wal)]

        report = import_from(hf, "langgraph-sqlite", str(path))

        assert report.ok
        assert [hashlib.sha256(file.read_bytes()).digest() for file in (path, wal)] == before
        assert tuples(HoldfastSaver(hf), "chat") == tuples(saver, "chat")
        play(saver, "sends")
    assert import_from(hf, "langgraph-sqlite", str(path)).threads == 2


def test_a_journal_that_was_left_beside_the_source_is_read_and_left(tmp_path: Path, hf: Holdfast) -> None:
    """A process that was killed leaves one; another who opens the file to write would put it away."""
    path, copy = tmp_path / "live.db", tmp_path / "left.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        play(saver, "chat")
        expected = tuples(saver, "chat")
        for end in ("", "-wal"):
            Path(f"{copy}{end}").write_bytes(Path(f"{path}{end}").read_bytes())
    files = (copy, Path(f"{copy}-wal"))
    before = [file.read_bytes() for file in files]

    assert import_from(hf, "langgraph-sqlite", str(copy)).ok

    assert [file.read_bytes() for file in files] == before
    assert tuples(HoldfastSaver(hf), "chat") == expected


def test_the_source_is_not_changed(source: Path, hf: Holdfast) -> None:
    before = source.read_bytes()
    import_from(hf, "langgraph-sqlite", str(source))
    assert source.read_bytes() == before


def _call_when_loaded(module: str, name: str, argument: str) -> bytes:
    """LangGraph's serializer calls `module.name(argument)` for this."""
    body = ormsgpack.packb((module, name, argument))
    return ormsgpack.packb(ormsgpack.Ext(EXT_CONSTRUCTOR_SINGLE_ARG, body))


def test_what_old_checkpoints_send_is_added_as_postgres_saver_does(hf: Holdfast) -> None:
    with postgres_schema() as url, postgres_saver(url) as theirs:
        play(theirs, "sends")
        with psycopg.connect(url, autocommit=True) as connection:
            changed = connection.execute(
                "UPDATE checkpoints SET checkpoint = "
                "jsonb_set(checkpoint, '{v}', '3') #- '{channel_versions,__pregel_tasks}'"
            )
            assert changed.rowcount
        expected = tuples(theirs, "sends")
        assert any(each.checkpoint["channel_values"].get("__pregel_tasks") for each in expected)

        assert import_from(hf, "langgraph-postgres", url).ok
        assert tuples(HoldfastSaver(hf), "sends") == expected
