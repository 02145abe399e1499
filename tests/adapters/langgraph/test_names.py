"""Names: a thread id or a namespace is whatever its user calls it, and never stands for another."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, config, version

Another = Callable[[], Face]

THREADS = [
    "#",
    "a#",
    "#a",
    "a#b",
    "a%23b",
    "a%b",
    "%",
    "%25",
    "a/b",
    "../a",
    "/",
    ".",
    "..",
    "a\\b",
    " ",
    "a b ",
    "a\nb",
    "\u202egnp.exe",
    "\N{PILE OF POO}",
    "e\u0301",
    "\u00e9",
    "A",
    "a",
    "CON",
    "a'b\";--",
    "x" * 150,
]

SPACES = [
    "",
    "child",
    "child:1f0d5a10-0000",
    "child:1|grand:2",
    "a|b",
    "|",
    ":",
    "#",
    "a#b",
    "%",
    "%23",
    "a/b",
    "..",
    "é\N{PILE OF POO}",
]


def test_every_thread_id_is_a_thread_of_its_own(saver: Face, another: Another) -> None:
    for number, thread in enumerate(THREADS, 1):
        saver.put(number, {"name": thread}, thread=thread)
        saver.write(number, [("name", thread)], thread=thread)

    for reading in (saver, another()):
        for thread in THREADS:
            assert reading.values(thread=thread) == {"name": thread}
            assert reading.writes(thread=thread) == [("task", "name", thread)]
            assert [one.config["configurable"]["thread_id"] for one in reading.list(config(thread, None))] == [thread]
        assert sorted(one.config["configurable"]["thread_id"] for one in reading.list(None)) == sorted(THREADS)


def test_every_namespace_is_one_of_its_own(saver: Face, another: Another) -> None:
    for thread in ("t", "t#", "t#a"):
        for number, ns in enumerate(SPACES, 1):
            saver.put(number, {"name": [thread, ns]}, thread=thread, ns=ns)

    for reading in (saver, another()):
        for thread in ("t", "t#", "t#a"):
            for ns in SPACES:
                assert reading.values(thread=thread, ns=ns) == {"name": [thread, ns]}
                found = reading.get(thread=thread, ns=ns).config["configurable"]
                assert (found["thread_id"], found["checkpoint_ns"]) == (thread, ns)
            listed = [one.config["configurable"]["checkpoint_ns"] for one in reading.list(config(thread, None))]
            assert sorted(listed) == sorted(SPACES)


def test_deleting_a_thread_leaves_those_whose_names_begin_like_it(saver: Face) -> None:
    for thread in ("t", "t#", "t#a", "t%23a", "ta", "t/a"):
        saver.put(1, thread=thread)
        saver.put(1, thread=thread, ns="a")

    saver.delete_thread("t")

    assert saver.list(config("t", None)) == []
    for thread in ("t#", "t#a", "t%23a", "ta", "t/a"):
        assert len(saver.list(config(thread, None))) == 2


@pytest.mark.parametrize("thread", [7, 0, -1, 1.5, UUID(int=7), True], ids=str)
def test_a_thread_id_need_not_be_a_text(saver: Face, another: Another, thread: object) -> None:
    saver.put(1, {"a": 1}, thread=thread)
    saver.put(2, {"a": 2}, thread=thread, parent=1)
    saver.write(2, [("a", 3)], thread=thread)

    for reading in (saver, another()):
        assert reading.values(thread=thread) == {"a": 2}
        assert reading.writes(2, thread=thread) == [("task", "a", 3)]
        assert len(reading.list(config(thread))) == 2
        assert reading.values(thread=str(thread)) == {"a": 2}

    saver.copy_thread(thread, "copy")
    saver.prune([thread])
    assert len(saver.list(config(thread))) == 1
    saver.delete_thread(thread)
    assert saver.list(config(thread)) == []
    assert len(saver.list(config("copy"))) == 2


def test_the_root_of_a_thread_is_a_holdfast_thread_of_that_name(local: Savers) -> None:
    face = Face(local.open(), is_async=False)
    face.put(1, {"messages": ["hello"]}, thread="invoice-42")
    face.put(2, {"messages": ["from below"]}, thread="invoice-42", ns="child:1")

    with local.handle() as hf:
        assert [info.name for info in hf.threads()] == ["invoice-42", "invoice-42#child:1"]
        latest = hf.thread("invoice-42").latest()
        assert latest is not None
        assert latest.state["messages"] == ["hello"]


CHANNELS = [
    *("$checkpoint", "$writes", "$cells", "$early", "$history", "$values", "$", "$$checkpoint", "checkpoint", "writes"),
    *("values", "", "a.b", "#", "%24", "branch:to:node", "__start__", "__pregel_tasks", "join:a+b:c", "ключ", "a\0b"),
]


def test_a_channel_may_have_any_name(saver: Face, another: Another) -> None:
    given = {channel: [channel] for channel in CHANNELS}
    saver.put(1, given)
    saver.write(1, list(given.items()))
    saver.put(2, {}, parent=1, versions=dict.fromkeys(CHANNELS, version(1)), new={})

    for reading in (saver, another()):
        assert reading.values(1) == given
        assert reading.values(2) == given
        assert reading.writes(1) == [("task", channel, [channel]) for channel in CHANNELS]
        assert reading.get(1).checkpoint["channel_versions"] == dict.fromkeys(CHANNELS, version(1))


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_channel_of_any_name_may_be_the_only_one(saver: Face, another: Another, channel: str) -> None:
    saver.put(1, {channel: 1})
    saver.put(2, {channel: 2}, parent=1)

    for reading in (saver, another()):
        assert reading.values(1) == {channel: 1}
        assert reading.values(2) == {channel: 2}
