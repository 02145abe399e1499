"""Copies of stores keep the claims of acts, whichever of several calls holds them."""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Cipher, Holdfast, ToolNotDone
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.stores.contract_runs import ActRow
from tests.crypto.keyed import CIPHER
from tests.runs.test_acts import Bank, pay_once
from tests.selection import every_store
from tests.stores.postgres.server import reused_address_at


def pay(hf: Holdfast, thread: str, invoice: Any = "A-17", note: str = "") -> str:
    with hf.run(thread, start={"n": 0}) as run:
        pay_once(run, note, invoice)
    return run.status


def not_done_then_done(hf: Holdfast, bank: Bank) -> None:
    bank.fault = ToolNotDone("the bank is closed")
    with pytest.raises(ToolNotDone):
        pay(hf, "a")
    bank.fault = None
    pay(hf, "b")


def released_then_done(hf: Holdfast, bank: Bank) -> None:
    pay(hf, "a")
    [act] = hf.acts()
    hf.release(act, by="anna", reason="it bounced")
    pay(hf, "b")


def undone_then_done(hf: Holdfast, bank: Bank) -> None:
    pay(hf, "a")
    hf.undo("a", to="@0")
    pay(hf, "b")


@every_store("copies of stores are written by each store in its own way")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
@pytest.mark.parametrize("happens", [not_done_then_done, released_then_done, undone_then_done])
def test_copies_keep_the_claim_of_the_call_that_holds_it(
    tmp_path: Path, kind: str, happens: Callable[[Holdfast, Bank], None]
) -> None:
    def url(name: str) -> str:
        return str(tmp_path / f"{name}.db") if kind == "sqlite" else f"dir:{tmp_path / name}"

    bank = Bank(undo=lambda invoice, note="": None)
    with holdfast.open(url("one"), tools=[bank.pay]) as hf:
        happens(hf, bank)
        paid = len(bank.paid)
        hf.repair(url("repaired"))
        hf.backup(url("copy"))
        assert export_jsonl(hf, tmp_path / "threads.jsonl").ok
    for name in ("repaired", "copy", "imported"):
        with holdfast.open(url(name), tools=[bank.pay]) as hf:
            if name == "imported":
                assert import_from(hf, "jsonl", str(tmp_path / "threads.jsonl")).ok
            assert [(act.thread, act.status) for act in hf.acts()] == [("b", "done")], name
            pay(hf, "d")
            assert len(bank.paid) == paid, name
            assert hf.verify().ok


def test_a_repair_keeps_the_claim_of_a_lost_entry(tmp_path: Path) -> None:
    bank = Bank()
    with holdfast.open(tmp_path / "one.db", tools=[bank.pay]) as hf:
        pay(hf, "a")
    with sqlite3.connect(tmp_path / "one.db") as connection:
        assert connection.execute("update entry set record = X'00'").rowcount == 1
    connection.close()
    with holdfast.open(tmp_path / "one.db", tools=[bank.pay]) as hf:
        assert hf.repair(tmp_path / "two.db").lost
    with holdfast.open(tmp_path / "two.db", tools=[bank.pay]) as hf:
        assert [(act.thread, act.status) for act in hf.acts()] == [("a", "in_doubt")]
        assert pay(hf, "b") == "waiting"
    assert len(bank.paid) == 1


def test_a_repair_of_damaged_claims_takes_them_from_the_journals(tmp_path: Path) -> None:
    bank = Bank()
    with holdfast.open(tmp_path / "one.db", tools=[bank.pay]) as hf:
        not_done_then_done(hf, bank)
        paid = len(bank.paid)
    with sqlite3.connect(tmp_path / "one.db") as connection:
        assert connection.execute("update act set number = 9").rowcount == 1
    connection.close()
    with holdfast.open(tmp_path / "one.db", tools=[bank.pay]) as hf:
        assert any("claim" in problem.what for problem in hf.repair(tmp_path / "two.db").lost)
    with holdfast.open(tmp_path / "two.db", tools=[bank.pay]) as hf:
        assert [(act.thread, act.status) for act in hf.acts()] == [("b", "done")]
        pay(hf, "c")
    assert len(bank.paid) == paid


def test_a_redacted_identity_is_not_computed_again(tmp_path: Path) -> None:
    def redact(text: str) -> str:
        return re.sub(r"\d{16}", "[card]", text)

    bank = Bank()
    with holdfast.open(tmp_path / "one.db", tools=[bank.pay], redact=redact) as hf:
        pay(hf, "a", 4111111111111111)
        pay(hf, "b", 5111111111111111)
        assert [act.identity for act in hf.acts()] == ['{"invoice":[card]}'] * 2
        hf.repair(tmp_path / "two.db")
        assert export_jsonl(hf, tmp_path / "threads.jsonl").ok
    for name in ("two", "three"):
        with holdfast.open(tmp_path / f"{name}.db", tools=[bank.pay], redact=redact) as hf:
            if name == "three":
                assert import_from(hf, "jsonl", str(tmp_path / "threads.jsonl")).ok
            assert sorted(act.thread or "" for act in hf.acts()) == ["a", "b"]
            pay(hf, "c", 4111111111111111)
            assert hf.verify().ok
    assert len(bank.paid) == 2


def test_a_redacted_note_does_not_lose_the_act_in_a_store_with_another_key(tmp_path: Path) -> None:
    bank = Bank()
    redact = holdfast.redaction.api_keys
    note = "sk_live_abcdefghijklmnop123"
    with holdfast.open(tmp_path / "one.db", tools=[bank.pay], redact=redact) as hf:
        pay(hf, "a", note=note)
        assert export_jsonl(hf, tmp_path / "threads.jsonl").ok
    with holdfast.open(tmp_path / "two.db", tools=[bank.pay], redact=redact, cipher=CIPHER) as hf:
        assert import_from(hf, "jsonl", str(tmp_path / "threads.jsonl")).ok
        assert [act.status for act in hf.acts(bank.pay)] == ["done"]
        pay(hf, "b", note=note)
    assert len(bank.paid) == 1


def test_verify_finds_a_claim_that_its_entry_does_not_support(tmp_path: Path) -> None:
    bank = Bank()
    with holdfast.open(tmp_path / "one.db", tools=[bank.pay]) as hf:
        not_done_then_done(hf, bank)
        store = hf.context.store
        [claim] = store.acts(limit=2)
        store.put_act(claim.key, claim, ActRow(claim.key, 1, 1))
        [problem] = hf.verify().problems
        assert (problem.thread, "is done, and its act is free" in problem.what) == ("b", True)
        store.put_act(claim.key, ActRow(claim.key, 1, 1), ActRow(claim.key, 1, 7))
        assert any("claim" in problem.what and "missing" in problem.what for problem in hf.verify().problems)
        store.put_act(claim.key, ActRow(claim.key, 1, 7), claim)
        assert hf.verify().ok


@every_store("each store keeps claims and keys in its own way")
@pytest.mark.parametrize("kind", ["sqlite", "directory", "postgres"])
def test_claims_survive_a_new_key_and_an_erasure(tmp_path: Path, kind: str) -> None:
    urls = {"sqlite": str(tmp_path / "a.db"), "directory": f"dir:{tmp_path / 'a'}"}
    url = urls.get(kind) or reused_address_at(tmp_path)
    old, new = secrets.token_bytes(32), secrets.token_bytes(32)
    bank = Bank()
    with holdfast.open(url, tools=[bank.pay], cipher=Cipher({"old": old}, "old")) as hf:
        pay(hf, "a")
        pay(hf, "b", "A-18")
        ids = {act.id for act in hf.acts()}
    with holdfast.open(url, tools=[bank.pay], cipher=Cipher({"old": old, "new": new}, "new")) as hf:
        pay(hf, "c")
        hf.rekey()
    with holdfast.open(url, tools=[bank.pay], cipher=Cipher({"new": new}, "new")) as hf:
        pay(hf, "d")
        pay(hf, "e", "A-18")
        assert len(bank.paid) == 2
        hf.erase("a")
        hf.optimize()
        assert {act.id for act in hf.acts()} == ids
        assert sorted(act.status for act in hf.acts()) == ["deleted", "done"]
        assert pay(hf, "f") == "waiting"
        assert hf.verify().ok
    assert len(bank.paid) == 2
