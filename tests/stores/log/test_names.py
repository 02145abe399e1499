"""Names as folders: one folder per name on every file system, whatever the name."""

from __future__ import annotations

import unicodedata
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import LimitReached
from holdfast.stores.contract import KeyRow
from holdfast.stores.contract_runs import ClaimLimit
from holdfast.stores.log import DirectoryStore
from holdfast.stores.log.device import decoded, encoded
from holdfast.testing.contract.build import names_of, saved, texts_of
from holdfast.testing.contract.queues import claimed, queued
from holdfast.testing.contract.thread_pages import HOSTILE
from tests.covers import covers
from tests.stores.log.conftest import Open

any_text = st.text(st.characters(codec=None), max_size=60)


def as_a_careless_file_system_sees_it(folder: str) -> str:
    return unicodedata.normalize("NFC", folder).casefold()


def test_ordinary_names_are_themselves() -> None:
    for name in ("customer-42", "a_b.c", "2026-05-01", "x"):
        assert encoded(name) == name


def test_names_can_be_read_by_anybody() -> None:
    assert encoded("user/Ann 1") == "user%2f%41nn%201"
    assert unquote(encoded("Grüße/世界")) == "Grüße/世界"


@covers("C3")
def test_hostile_names_get_folders_that_no_file_system_mixes_up() -> None:
    folders = [encoded(name) for name in [*HOSTILE, ""]]
    assert len({as_a_careless_file_system_sees_it(folder) for folder in folders}) == len(folders)
    for folder in folders:
        assert len(folder) <= 120
        assert folder.isascii()
        assert not set(folder) & set('/\\:*?"<>| \0')
        assert folder[0] not in ".-"
        assert folder[-1] != "."
        assert folder.split(".")[0] not in ("con", "nul")


@given(any_text, any_text)
def test_two_names_never_share_a_folder(one: str, other: str) -> None:
    if one != other:
        assert as_a_careless_file_system_sees_it(encoded(one)) != as_a_careless_file_system_sees_it(encoded(other))


@given(any_text)
def test_a_folder_tells_its_name_unless_it_is_too_long(name: str) -> None:
    folder = encoded(name)
    assert decoded(folder) == (None if "~" in folder else name)


@pytest.mark.parametrize("folder", ["A", "%41x%", "%zz", "a b", "%61", "con", ".x", "%ff"])
def test_what_is_no_folder_of_ours(folder: str) -> None:
    assert decoded(folder) is None


def test_a_long_name_keeps_its_beginning() -> None:
    folder = encoded("project/" + "x" * 1000)
    assert folder.startswith("project%2fxxx")
    assert len(folder) <= 120
    assert not encoded("%" * 500).partition("~")[0].endswith(("%", "%2"))


@covers("C2")
@pytest.mark.parametrize("name", ["holdfast.json", "holdfast.json.new", "holdfast.json.0a1b.new"])
def test_no_namespace_is_taken_for_the_file_that_says_what_a_store_is(name: str) -> None:
    assert not encoded(name).startswith("holdfast")
    assert decoded(encoded(name)) == name


@pytest.mark.parametrize("name", ["a.new", "torn-0-1", "log.jsonl", "lock-gate"])
def test_a_thread_may_have_the_name_of_a_file_of_the_store(open_store: Open, name: str) -> None:
    store = open_store()
    line = saved(store, name, "x")
    store.reclaim(scrub=True)
    assert names_of(open_store()) == [name]
    store.drop(line.number)
    assert names_of(open_store()) == []


@pytest.mark.parametrize("namespace", ["threads", "dropped", "blobs", "keys", "counters"])
def test_a_namespace_may_have_the_name_of_a_folder_of_the_store(open_store: Open, namespace: str) -> None:
    store = open_store(namespace=namespace)
    one, two = (KeyRow(bytes([n]) * 16, "key", b"wrapped") for n in range(2))
    for row in (one, two):
        assert store.put_key(row.id, None, row) == row
    line = saved(store, "a", "x")
    store.put_key(one.id, one, None)
    store.reclaim(scrub=True)
    other = open_store(namespace=namespace)
    assert other.keys(limit=9) == [two]
    assert texts_of(other, line.span()) == [["x"]]


@pytest.mark.parametrize("name", ["ticket.new", "torn-0-1"])
def test_the_claims_for_a_handler_are_not_taken_for_a_leftover(store: DirectoryStore, path: Path, name: str) -> None:
    limit = ClaimLimit(name, claims=1, within=3_600_000)
    claimed(store, queued(store, "a", handler=name), limit)
    store.reclaim(scrub=True)
    store.backup(str(path.with_name("copy")))
    copy = DirectoryStore(path.with_name("copy"), namespace="default", durability="off")
    with closing(copy):
        for there in (store, copy):
            with pytest.raises(LimitReached):
                claimed(there, queued(there, "b", handler=name), limit)
