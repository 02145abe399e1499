"""Versions, and savers that are copied or given another serializer while they are in use."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, config


class Spying(JsonPlusSerializer):
    """Counts what goes through it."""

    def __init__(self) -> None:
        super().__init__()
        self.dumped: list[Any] = []
        self.loaded = 0

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.dumped.append(obj)
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.loaded += 1
        return super().loads_typed(data)


class Mirror(CipherProtocol):
    """A cipher for the eye only."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "mirror", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "mirror"
        return ciphertext[::-1]


def sync(saver: BaseCheckpointSaver[Any]) -> Face:
    return Face(saver, is_async=False)


def test_a_saver_is_what_langgraph_takes_for_one(local: Savers) -> None:
    saver: Any = local.open()

    assert saver not in (None, True, False)
    assert isinstance(saver, BaseCheckpointSaver)


@pytest.mark.parametrize("current", [None, 0, 1, 41, 41.0, 41.9, f"{41:032}.{0.25:016}", "41", "41.5"], ids=repr)
def test_the_next_version_is_a_text_that_sorts_after_the_last(local: Savers, current: Any) -> None:
    saver = local.open()
    reached = int(str(current or 0).split(".", maxsplit=1)[0])

    following = saver.get_next_version(current, None)

    assert isinstance(following, str)
    number, _, tail = following.partition(".")
    assert (int(number), len(number)) == (reached + 1, 32)
    assert tail
    assert following > f"{reached:032}.{0.999999:016}"


def test_two_who_count_on_from_one_version_get_different_ones(local: Savers) -> None:
    saver = local.open()

    assert len({saver.get_next_version(f"{1:032}.{0.5:016}", None) for _ in range(20)}) == 20


def test_versions_grow(local: Savers) -> None:
    saver = local.open()
    versions: list[Any] = [saver.get_next_version(None, None)]
    for _ in range(1200):
        versions.append(saver.get_next_version(versions[-1], None))

    assert versions == sorted(set(versions))


def test_a_copy_and_its_original_are_one_saver(savers: Savers) -> None:
    original = savers.open()
    sync(original).put(1, {"a": 1})
    clone = copy.copy(original)

    sync(clone).put(2, {"a": 2}, parent=1)
    sync(clone).write(2, [("a", "by the clone")])
    sync(original).write(2, [("a", "ignored"), ("b", "by the original")])
    sync(original).put(3, {"a": 3}, parent=2)

    for one in (original, clone, savers.open()):
        assert sync(one).values() == {"a": 3}
        assert sync(one).writes(2) == [("task", "a", "by the clone"), ("task", "b", "by the original")]
    assert isinstance(clone, HoldfastSaver)


def test_a_copy_outlives_its_original(savers: Savers) -> None:
    original = savers.open()
    clone = copy.copy(original)
    sync(original).put(1, {"a": 1})
    del original

    assert sync(clone).values() == {"a": 1}
    assert asyncio.run(clone.aget(config())) is not None


def test_a_longer_list_of_types_makes_a_saver_on_the_same_store(savers: Savers) -> None:
    original = savers.open()
    sync(original).put(1, {"a": 1})

    wider = original.with_allowlist([("tests.adapters.langgraph.test_clones", "Nothing")])
    sync(wider).put(2, {"a": 2}, parent=1)

    assert isinstance(wider, HoldfastSaver)
    assert sync(original).values() == {"a": 2}
    assert len(sync(wider).list(config())) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_serializer_that_is_assigned_later_is_used(savers: Savers, is_async: bool) -> None:
    saver = savers.open()
    face = Face(saver, is_async=is_async)
    face.put(1, {"a": {"before": 1}})
    spy = Spying()

    saver.serde = spy
    face.put(2, {"a": {"after": 2}}, parent=1)
    face.write(2, [("a", {"written": 3})])

    assert any("after" in repr(one) for one in spy.dumped)
    assert any("written" in repr(one) for one in spy.dumped)
    reading = Face(savers.open(), is_async=is_async)
    reading.saver.serde = spy
    before = spy.loaded
    assert reading.values() == {"a": {"after": 2}}
    assert reading.writes(2) == [("task", "a", {"written": 3})]
    assert spy.loaded > before


def test_a_serializer_given_to_a_clone_is_the_clones_alone(local: Savers) -> None:
    original = local.open()
    clone = copy.copy(original)
    spy = Spying()
    clone.serde = spy

    sync(original).put(1, {"a": "x"})
    assert spy.dumped == []
    sync(clone).put(2, {"a": "y"}, parent=1)
    assert spy.dumped


def test_langgraphs_own_encryption_works(savers: Savers) -> None:
    serde = EncryptedSerializer(Mirror(), JsonPlusSerializer())
    face = sync(savers.open(serde=serde))
    face.put(1, {"a": "the secret", "b": ["the secret"]})
    face.write(1, [("a", "the secret")])
    face.put(2, {"a": "the secret", "b": ["the secret", "more"]}, parent=1)

    reading = sync(savers.open(serde=serde))
    assert reading.values(1) == {"a": "the secret", "b": ["the secret"]}
    assert reading.writes(1) == [("task", "a", "the secret")]
    assert reading.values() == {"a": "the secret", "b": ["the secret", "more"]}
    with savers.handle() as hf:
        kept = [hf.thread("t").load(one.id) for one in hf.thread("t").history()]
        assert kept
        assert "the secret" not in repr(kept)
