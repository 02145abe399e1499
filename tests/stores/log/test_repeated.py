"""A group that is there twice, as after copies of a log were joined: it is told, and nothing goes back to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import Line, effect, journaled, running, saved, texts_of
from holdfast.threads.scan import thread_named
from tests.stores.log.conftest import Open, log_of


def groups(log: Path) -> list[bytes]:
    found = [b""]
    for line in log.read_bytes().splitlines(keepends=True):
        found[-1] += line
        if json.loads(line)["t"] == "end":
            found.append(b"")
    return found[:-1]


@pytest.fixture
def line(store: DirectoryStore) -> Line:
    return saved(store, "a", "x", "y", "z")


@pytest.mark.parametrize("number", [1, 2])
def test_a_group_behind_a_later_one_does_not_make_the_thread_older(
    line: Line, open_store: Open, path: Path, number: int
) -> None:
    log = log_of(path, "a")
    log.write_bytes(log.read_bytes() + groups(log)[number])
    store = open_store()
    with pytest.raises(Damaged, match=r"log\.jsonl"):
        thread_named(store, "a")
    line.store = store
    with pytest.raises(Damaged):
        line.save("w")
    assert texts_of(store, line.span()) == [["x", "y", "z"]]
    assert list(store.check()) != []


def test_a_renewed_lease_that_is_there_twice(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line, row = running(store)
    store.renew(line.number, row.fence, row.lease_until + 10)
    store.renew(line.number, row.fence, row.lease_until + 20)
    log = log_of(path, "a")
    log.write_bytes(log.read_bytes() + groups(log)[-2])
    with pytest.raises(Damaged):
        open_store().run(line.number)


def test_a_group_that_was_taken_out(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line, row = running(store)
    journaled(store, line.number, row.fence, [effect("started")])
    journaled(store, line.number, row.fence, [effect("done", number=1)])
    store.renew(line.number, row.fence, row.lease_until + 20)
    log = log_of(path, "a")
    parts = groups(log)
    log.write_bytes(b"".join([*parts[:-2], parts[-1]]))
    other = open_store()
    with pytest.raises(Damaged):
        other.entries(line.number, after=0, limit=9)
    assert list(other.check()) != []


def test_what_was_rewritten_goes_on_with_its_numbers(line: Line, open_store: Open, path: Path) -> None:
    line.store.sweep(line.number, line.whole(line.span(1)))
    line.save("w")
    store = open_store()
    assert texts_of(store, line.span(1)) == [["y", "z", "w"]]
    assert list(store.check()) == []
    log = log_of(path, "a")
    log.write_bytes(log.read_bytes() + groups(log)[-1])
    with pytest.raises(Damaged):
        thread_named(open_store(), "a")
