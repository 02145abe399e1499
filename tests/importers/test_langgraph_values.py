"""Values of every type come over as the serde wrote them, and are given back as it reads them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Interrupt, Send

from holdfast import Holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.importers import import_from
from tests.importers.sources import config, edit, postgres_saver, postgres_schema, put_values, tuples

VALUES: dict[str, Any] = {
    "nothing": None,
    "flag": True,
    "number": -7,
    "large": 2**63,
    "real": 1.5,
    "nan": float("inf"),
    "text": "NUL is \x00 not for JSONB, ü is",
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"ab"),
    "list": [1, [2.0, None], {"a": {}}],
    "tuple": (1, 2),
    "set": {1},
    "keys": {1: "one", "$ext": 5, (1, 2): 3},
    "$ext": {"$ext": "dict", "payload": []},
    "time": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "uuid": UUID(int=5),
    "decimal": Decimal("1.10"),
    "message": HumanMessage("hello", id="h"),
    "messages": [HumanMessage("hello", id="h"), AIMessage("yes", id=None)],
    "nested": {"deep": [[HumanMessage("hello", id="h")], [AIMessage("again", id="a")]]},
    "send": Send("node", {"messages": [HumanMessage("hello", id="h")]}),
    "interrupt": (Interrupt(value={"question": 1}, id="i"),),
}


def exactly(saver: BaseCheckpointSaver[Any], thread: str = "t") -> list[str]:
    """Every checkpoint of a thread with the types of its values; the order of a checkpoint's keys means nothing."""
    return [
        repr((each.config, sorted(each.checkpoint.items()), each.metadata, each.parent_config, each.pending_writes))
        for each in tuples(saver, thread)
    ]


@pytest.mark.parametrize("name", VALUES)
def test_values_in_sqlite(tmp_path: Path, hf: Holdfast, name: str) -> None:
    path = tmp_path / "values.db"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        put_values(theirs, {name: VALUES[name]})
        expected = exactly(theirs)

    assert import_from(hf, "langgraph-sqlite", str(path)).ok
    assert exactly(HoldfastSaver(hf, allow=True)) == expected


def test_values_in_postgresql(hf: Holdfast) -> None:
    with postgres_schema() as url, postgres_saver(url) as theirs:
        for name, value in VALUES.items():
            if name not in ("text", "nan"):  # what PostgresSaver does not take
                put_values(theirs, {name: value}, thread=name)
        assert import_from(hf, "langgraph-postgres", url).ok
        for name in VALUES:
            assert exactly(HoldfastSaver(hf, allow=True), name) == exactly(theirs, name)


def test_arrays(tmp_path: Path, hf: Holdfast) -> None:
    path = tmp_path / "values.db"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        put_values(theirs, {"array": np.arange(6, dtype="int16").reshape(2, 3)})
    assert import_from(hf, "langgraph-sqlite", str(path)).ok
    [found] = tuples(HoldfastSaver(hf), "t")
    np.testing.assert_array_equal(found.checkpoint["channel_values"]["array"], [[0, 1, 2], [3, 4, 5]])


def test_places_of_writes_are_kept(tmp_path: Path, hf: Holdfast) -> None:
    path = tmp_path / "values.db"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        put_values(theirs, {"a": 1, "b": 2})
    with closing(sqlite3.connect(path)) as connection:
        expected = connection.execute("SELECT task_id, task_path, idx, channel FROM writes ORDER BY idx").fetchall()
    assert import_from(hf, "langgraph-sqlite", str(path)).ok
    found = hf.thread("t").load("@-1").state["$writes"]
    assert sorted((tuple(write[:4]) for write in found), key=lambda write: write[2]) == expected
    assert [write[2] for write in expected] == [-4, -1, 0, 1]


def test_checkpoints_that_are_json(tmp_path: Path, hf: Holdfast) -> None:
    """Before there was msgpack, a checkpoint was one piece of JSON; an object was written as how to make it."""
    path = tmp_path / "values.db"
    message = HumanMessage("hello", id="h")
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        put_values(theirs, {"a": [1], "message": message})
        [before] = tuples(theirs, "t")
        written: dict[str, Any] = {**before.checkpoint, "channel_values": {"a": [1], "message": message.to_json()}}
        edit(path, "UPDATE checkpoints SET type = 'json', checkpoint = ?", json.dumps(written).encode())
        edit(path, "UPDATE writes SET type = 'json', value = ? WHERE idx = 0", b'{"a": [1]}')
        expected = exactly(theirs)
        assert tuples(theirs, "t")[0].checkpoint["channel_values"]["message"] == message

    assert import_from(hf, "langgraph-sqlite", str(path)).ok

    assert exactly(HoldfastSaver(hf)) == expected
    stored = hf.thread("t").load("@-1").state["$writes"]
    assert {"$ext": "typed", "payload": ["json", b'{"a": [1]}']} in [write[4] for write in stored]


def test_json_that_is_none(tmp_path: Path, hf: Holdfast) -> None:
    path = tmp_path / "values.db"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        put_values(theirs, {"a": 1})
    edit(path, "UPDATE checkpoints SET type = 'json', checkpoint = ?", b'{"v": ')
    [skipped] = import_from(hf, "langgraph-sqlite", str(path)).skipped
    assert skipped.reason == "it is not JSON"


def test_types_that_nobody_knows_are_kept(tmp_path: Path, hf: Holdfast) -> None:
    path = tmp_path / "values.db"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        put_values(theirs, {"a": 1, "b": 2})
    edit(path, "UPDATE writes SET type = 'pickle', value = x'80' WHERE idx = 0")
    edit(path, "UPDATE writes SET type = 'my own', value = x'81' WHERE idx = 1")
    assert import_from(hf, "langgraph-sqlite", str(path)).ok
    stored = {write[2]: write[4] for write in hf.thread("t").load("@-1").state["$writes"]}
    assert stored[0] == {"$ext": "typed", "payload": ["pickle", b"\x80"]}
    assert stored[1] == {"$ext": "typed", "payload": ["my own", b"\x81"]}


def test_msgpack_that_others_wrote_is_kept_to_the_byte(tmp_path: Path, hf: Holdfast) -> None:
    path = tmp_path / "values.db"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        put_values(theirs, {"a": 1})
        edit(path, "UPDATE writes SET value = x'cb3ff8000000000000' WHERE idx = 0")  # 1.5, as anybody writes it
        edit(path, "UPDATE writes SET value = x'd90161' WHERE idx = -1")  # "a", longer than it need be
        expected = tuples(theirs, "t")
    assert import_from(hf, "langgraph-sqlite", str(path)).ok
    assert tuples(HoldfastSaver(hf), "t") == expected
    stored = {write[2]: write[4] for write in hf.thread("t").load("@-1").state["$writes"]}
    assert stored[0] == 1.5
    assert stored[-1] == {"$ext": "typed", "payload": ["msgpack", b"\xd9\x01a"]}


class Turned(CipherProtocol):
    """Stands for a cipher."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "turned", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def test_encrypted_values_in_postgresql_stay_so(hf: Holdfast) -> None:
    serde = EncryptedSerializer(Turned(), JsonPlusSerializer())
    with postgres_schema() as url, postgres_saver(url) as theirs:
        theirs.serde = serde
        put_values(theirs, {"list": ["secret"], "text": "in clear"})

        assert import_from(hf, "langgraph-postgres", url).ok

        assert tuples(HoldfastSaver(hf, serde=serde), "t") == tuples(theirs, "t")
    stored = hf.thread("t").load("@-1").state["list"]
    assert stored["payload"][0] == "msgpack+turned"


def test_the_writes_of_config_are_found(tmp_path: Path, hf: Holdfast) -> None:
    """Metadata is what is filtered by."""
    path = tmp_path / "values.db"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        put_values(theirs, {"a": 1})
    edit(path, "UPDATE checkpoints SET metadata = ?", json.dumps({"user": "ü", "n": [1, {"a": None}]}).encode())
    assert import_from(hf, "langgraph-sqlite", str(path)).ok
    ours = HoldfastSaver(hf)
    [found] = ours.list(config("t"), filter={"user": "ü"})
    assert found.metadata == {"user": "ü", "n": [1, {"a": None}]}
    assert not [*ours.list(None, filter={"user": "u"})]
