"""Damage in a journal: what was recorded is never taken for something that did not happen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.errors import Damaged
from holdfast.stores.contract import Live
from holdfast.stores.contract_runs import ActRow, RunRow
from holdfast.stores.log import DirectoryStore
from holdfast.stores.log.plan import Locks
from holdfast.testing.contract.build import FAR, Line, effect, inside, journaled, running, settled, suspended
from holdfast.testing.contract.build import commit as commit_of
from holdfast.testing.contract.claims import act_key, claimed, found, opened_run
from tests.stores.log.conftest import Open, damage_line, log_of


@pytest.fixture
def made(store: DirectoryStore) -> tuple[Line, RunRow]:
    """A run with two entries, the second of them started and then done."""
    line, row = running(store)
    journaled(store, line.number, row.fence, [effect(topic="m")])
    journaled(store, line.number, row.fence, [effect("started")])
    journaled(store, line.number, row.fence, [effect("done", number=2)])
    return line, row


def test_the_last_entry_is_missed(made: tuple[Line, RunRow], open_store: Open, path: Path) -> None:
    line, row = made
    journaled(line.store, line.number, row.fence, [effect("started")])
    damage_line(log_of(path, "a"), "entry")
    store = open_store()
    assert store.last_entry(line.number) == 3, "the group says so, and is sound"
    assert len(store.entries(line.number, after=0, limit=2)) == 2
    with pytest.raises(Damaged, match="journal entry 3"):
        store.entries(line.number, after=2, limit=9)
    with pytest.raises(Damaged, match="journal entry 3"):
        store.entries(line.number, after=0, limit=100, topic="m")
    [number] = journaled(store, line.number, row.fence, [effect()])
    assert number == 4, "no number is given out again"


VERBS: dict[str, Callable[[DirectoryStore, int, RunRow], object]] = {
    "entries": lambda store, thread, row: store.entries(thread, after=0, limit=9),
    "entries by topic": lambda store, thread, row: store.entries(thread, after=0, limit=100, topic="m"),
    "last_entry": lambda store, thread, row: store.last_entry(thread),
    "journal": lambda store, thread, row: store.journal(thread, row.fence, [effect(number=3)], last=2),
    "replace": lambda store, thread, row: store.journal(thread, row.fence, [effect(number=1)], last=None),
    "post": lambda store, thread, row: store.post(thread, effect(number=3)),
    "settle": lambda store, thread, row: settled(store, thread, 1, "done", effect()),
    "suspend": lambda store, thread, row: suspended(store, replace(row, status="waiting"), effect("asked"), 2),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("rewritten", [False, True])
def test_which_entry_was_changed_cannot_be_known(
    made: tuple[Line, RunRow], open_store: Open, path: Path, verb: str, rewritten: bool
) -> None:
    line, row = made
    log = log_of(path, "a")
    damage_line(log, "entry")
    if rewritten:
        assert open_store().sweep(line.number, Live((), FAR, frozenset())).dropped == 1
    with pytest.raises(Damaged, match=r"log\.jsonl: \d+ bytes at offset \d+ are damaged"):
        VERBS[verb](open_store(), line.number, row)


def test_a_save_that_has_nothing_to_do_with_the_journal_goes_on(
    made: tuple[Line, RunRow], open_store: Open, path: Path
) -> None:
    line, row = made
    damage_line(log_of(path, "a"), "entry")
    store = open_store()
    saved = inside(commit_of("a", line.at), fence=row.fence)
    line.position = store.commit(saved)
    with pytest.raises(Damaged):
        store.commit(inside(commit_of("a", line.at), fence=row.fence, entries=(effect(number=3),), last_entry=2))


@pytest.mark.parametrize("kind", ["end", "entry"])
def test_an_entry_behind_which_nothing_is_whole(
    made: tuple[Line, RunRow], open_store: Open, path: Path, kind: str
) -> None:
    line, _ = made
    log = log_of(path, "a")
    damage_line(log, kind)
    log.write_bytes(log.read_bytes().rstrip(b"\n") + b"\n")
    store = open_store()
    with pytest.raises(Damaged):
        store.entries(line.number, after=0, limit=9)


def test_a_line_break_that_changed_joins_an_entry_with_its_end(
    made: tuple[Line, RunRow], open_store: Open, path: Path
) -> None:
    line, row = made
    log = log_of(path, "a")
    whole = log.read_bytes()
    line.store.renew(line.number, row.fence, row.lease_until)
    at = whole.rindex(b"\n", 0, -1)
    data = log.read_bytes()
    log.write_bytes(data[:at] + b" " + data[at + 1 :])
    with pytest.raises(Damaged):
        open_store().entries(line.number, after=0, limit=9)


def test_an_irreversible_tool_is_not_called_again_when_the_record_of_its_call_is_damaged(path: Path) -> None:
    calls: list[int] = []

    @holdfast.tool(effect="irreversible")
    def pay(amount: int) -> str:
        calls.append(amount)
        raise KeyboardInterrupt

    def go() -> None:
        with holdfast.open(f"dir:{path}", durability="off", tools=[pay]) as hf, hf.run("a", start={}) as run:
            for _ in run.steps():
                run.tool("pay", {"amount": 1}, key="k")

    with pytest.raises(KeyboardInterrupt):
        go()
    damage_line(log_of(path, "a"), "entry")
    with pytest.raises(Damaged):
        go()
    assert calls == [1]


def test_a_claim_that_is_replaced_counts_until_the_intent_is_written(
    store: DirectoryStore, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = opened_run(store, "a"), opened_run(store, "b")
    key = act_key("A-17")
    claim = claimed(store, first, key)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Locks, "append", die)
        with pytest.raises(KeyboardInterrupt):
            claimed(store, second, key, claim)
    for reader in (store, open_store()):
        assert found(reader, key) == claim
        assert reader.acts(limit=10) == [claim]
        assert not list(reader.check())
    assert claimed(store, second, key, claim) == found(store, key) == ActRow(key, second, 1)
