"""What is stored of a graph can be encrypted and redacted: values, metadata, writes, and the journal of its tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Command, interrupt

import holdfast
from holdfast import Cipher
from holdfast.adapters.langgraph import HoldfastSaver, tools_thread
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.acting import build
from tests.adapters.langgraph.graphs import call

CIPHER = Cipher(keys={"k": bytes(range(32))}, current="k")
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t"}}
SECRETS = {
    "value": "secret-of-a-message",
    "metadata": "secret-of-the-metadata",
    "call": "secret-of-an-argument",
    "result": "secret-of-a-result",
    "question": "secret-of-a-question",
    "answer": "secret-of-an-answer",
}


class Flip(CipherProtocol):
    """A cipher that needs no package."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "flip", bytes(byte ^ 0x5A for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "flip"
        return bytes(byte ^ 0x5A for byte in ciphertext)


def secretive() -> BaseTool:
    @tool
    def confide(text: str) -> str:
        """Tell somebody something."""
        return f"{interrupt(SECRETS['question'])} {text} {SECRETS['result']}"

    return confide


def confide(saver: HoldfastSaver) -> Any:
    """A conversation with a secret in each place that is stored."""
    lines = [AIMessage("", tool_calls=[call("confide", 1, text=SECRETS["call"])]), AIMessage("Done.")]
    graph = build(saver, [secretive()], "agent", lines)
    given = {"messages": [HumanMessage(SECRETS["value"], id="h")]}
    graph.invoke(given, {**CONFIG, "metadata": {"owner": SECRETS["metadata"]}}, durability="sync")
    return graph.invoke(Command(resume=SECRETS["answer"]), CONFIG, durability="sync")


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def address(kind: str, folder: Path) -> str:
    return str(folder / "agent.db") if kind == "sqlite" else f"dir:{folder / 'agents'}"


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_no_secret_is_on_the_disk(kind: str, tmp_path: Path) -> None:
    url = address(kind, tmp_path)
    with HoldfastSaver(url, cipher=CIPHER) as saver:
        said = confide(saver)
        assert SECRETS["result"] in said["messages"][-2].content
        written = on_disk(tmp_path)  # with what is in the write-ahead log
        assert saver.hf.verify(deep=True).ok
    for kept in (written, on_disk(tmp_path)):
        assert [place for place, secret in SECRETS.items() if secret.encode() in kept] == []
    with HoldfastSaver(url, cipher=CIPHER) as saver:
        found = saver.get_tuple({"configurable": {"thread_id": "t"}})
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"][0].content == SECRETS["value"]
        assert any(each.metadata.get("owner") == SECRETS["metadata"] for each in saver.list(None))
        [effect] = [each for each in saver.hf.effects(tools_thread("t")) if each.status == "done"]
        assert effect.arguments == {"text": SECRETS["call"]}


def test_the_search_finds_what_is_not_encrypted(tmp_path: Path) -> None:
    """Otherwise the test above could not fail. A file of lines is searched, as SQLite's are compressed."""
    with HoldfastSaver(address("directory", tmp_path)) as saver:
        confide(saver)
        written = on_disk(tmp_path)
    assert [place for place, secret in SECRETS.items() if secret.encode() not in written] == []


def test_changes_are_found_before_they_are_encrypted(tmp_path: Path) -> None:
    """An encrypted conversation is stored as its changes, too."""

    def grown(path: Path, **options: Any) -> float:
        with HoldfastSaver(path, durability="off", **options) as saver:
            graph = graphs.chat(saver)
            for turn in range(40):
                graph.invoke({"messages": [HumanMessage("x" * 2000 + str(turn), id=f"h{turn}")]}, CONFIG)
        return path.stat().st_size

    plain, encrypted = grown(tmp_path / "plain.db"), grown(tmp_path / "encrypted.db", cipher=CIPHER)
    assert encrypted < 3 * plain


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_what_is_in_clear_is_refused_with_a_key(kind: str, tmp_path: Path) -> None:
    url = address(kind, tmp_path)
    with HoldfastSaver(url) as saver:
        confide(saver)
    with pytest.raises(holdfast.HoldfastError, match="not encrypted"):
        HoldfastSaver(url, cipher=CIPHER)


def test_without_the_key_nothing_is_read(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "agent.db", cipher=CIPHER) as saver:
        confide(saver)
    other = Cipher(keys={"k": bytes(32)}, current="k")
    with pytest.raises(holdfast.errors.WrongKey):
        HoldfastSaver(tmp_path / "agent.db", cipher=other).get_tuple({"configurable": {"thread_id": "t"}})


def test_the_serializer_that_encrypts_works(tmp_path: Path) -> None:
    """It encrypts values and writes; metadata is not for it, as with LangGraph's own savers."""
    serde = EncryptedSerializer(Flip())
    with HoldfastSaver(address("directory", tmp_path), serde=serde) as saver:
        said = confide(saver)
        assert SECRETS["result"] in said["messages"][-2].content
        written = on_disk(tmp_path)
        assert saver.hf.verify(deep=True).ok
    found = [place for place, secret in SECRETS.items() if secret.encode() in written]
    assert found == ["metadata", "call"], "Holdfast's own cipher has all; this one what goes through it"
    with HoldfastSaver(address("directory", tmp_path), serde=serde) as saver:
        graph = graphs.chat(saver)
        assert graph.get_state(CONFIG).values["messages"][0].content == SECRETS["value"]
        graph.invoke({"messages": [HumanMessage("more", id="more")]}, CONFIG)
    with HoldfastSaver(address("directory", tmp_path)) as saver, pytest.raises(holdfast.HoldfastError):
        saver.get_tuple({"configurable": {"thread_id": "t"}})


def test_texts_are_redacted_before_they_are_stored(tmp_path: Path) -> None:
    def redact(text: str) -> str:
        return re.sub(r"secret-of-[a-z-]+", "[removed]", text)

    with HoldfastSaver(address("directory", tmp_path), redact=redact) as saver:
        graph = graphs.chat(saver)
        given = {"messages": [HumanMessage(SECRETS["value"], id="h")]}
        graph.invoke(given, {**CONFIG, "metadata": {"owner": SECRETS["metadata"]}})
        assert graph.get_state(CONFIG).values["messages"][0].content == "[removed]"
        written = on_disk(tmp_path)
        assert saver.hf.verify(deep=True).ok
    assert [place for place, secret in SECRETS.items() if secret.encode() in written] == []


def test_what_tools_were_told_is_redacted(tmp_path: Path) -> None:
    def redact(text: str) -> str:
        return re.sub(r"secret-of-[a-z-]+", "[removed]", text)

    with HoldfastSaver(address("directory", tmp_path), redact=redact) as saver:
        confide(saver)
        written = on_disk(tmp_path)
        [effect] = [each for each in saver.hf.effects(tools_thread("t")) if each.status == "done"]
        assert effect.arguments == {"text": "[removed]"}
    assert [place for place, secret in SECRETS.items() if secret.encode() in written] == []


def test_erasing_removes_it_from_the_file(tmp_path: Path) -> None:
    with HoldfastSaver(address("directory", tmp_path)) as saver:
        confide(saver)
        graphs.chat(saver).invoke({"messages": [HumanMessage("stays", id="s")]}, {"configurable": {"thread_id": "u"}})
        for thread in ("t", tools_thread("t")):
            saver.hf.erase(thread)
        written = on_disk(tmp_path)
        assert saver.hf.verify(deep=True).ok
    assert b"stays" in written
    assert [place for place, secret in SECRETS.items() if secret.encode() in written] == []
