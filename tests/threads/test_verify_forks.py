"""Registrations of forks: verify names one that is missing and one that nothing explains, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.delta.parts import LogKind, log_kind
from holdfast.formats import lines
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.threads.verify import verify
from holdfast.types import Problem
from tests.selection import every_store
from tests.stores.log.conftest import resummed
from tests.threads.tables import Tables
from tests.threads.wholes import CIPHER, KINDS, address, opened, shown, state_at

Kind = Literal["sqlite", "directory", "postgres"]
STORED: tuple[Kind, ...] = ("sqlite", "directory", "postgres")


def family(hf: Holdfast) -> None:
    """An origin, a fork of it, a fork of that, and one who has nothing to do with them."""
    for name in ("origin", "other"):
        for n in (3, 4):
            hf.thread(name).save(state_at(n), step=n)
    hf.thread("origin").fork("middle").save({**state_at(4), "step": 9})
    hf.thread("middle").fork("fork").save({**state_at(5), "step": 10})


def number(hf: Holdfast, name: str) -> int:
    row = thread_named(hf.context.store, name)
    assert row is not None
    return row.position.thread


def unregister(kind: Kind, folder: Path, origin: int, thread: int) -> None:
    """Take a registration out of a store's files, so that all else in them fits."""
    if kind == "directory":
        _rewrite_log(folder, origin, lambda told: _without(told, thread))
    else:
        Tables(kind, folder).execute("DELETE FROM fork WHERE origin = ? AND thread = ?", origin, thread)


def register(kind: Kind, folder: Path, origin: int, thread: int) -> None:
    if kind == "directory":
        made = [lines.sealed(lines.ForkLine(number=thread))]
        _rewrite_log(
            folder, origin, lambda told: told + lines.group(made, origin, None, told.count(b'"t":"end"') + 1)[0]
        )
    else:
        Tables(kind, folder).execute("INSERT INTO fork (origin, thread) VALUES (?, ?)", origin, thread)


def _log_of(folder: Path, thread: int) -> Path:
    return next(
        path for path in (folder / "store").rglob("log.jsonl") if msgspec.json.decode(_first(path))["number"] == thread
    )


def _first(path: Path) -> bytes:
    return path.read_bytes().split(b"\n", 1)[0]


def _rewrite_log(folder: Path, thread: int, change: Callable[[bytes], bytes]) -> None:
    path = _log_of(folder, thread)
    before = path.read_bytes()
    path.write_bytes(change(before))
    assert path.read_bytes() != before


def _without(told: bytes, thread: int) -> bytes:
    """The lines of a log, with another number in the record of a fork."""
    written: list[bytes] = []
    for line in told.splitlines(keepends=True):
        fork = msgspec.json.decode(b"{" + line.partition(b",")[2].rstrip(b"\n"))
        if fork["t"] == "fork" and fork["number"] == thread:
            line = lines.reseal(msgspec.json.encode(fork | {"number": 1}))  # noqa: PLW2901 - in the place of the other
        written.append(line)
    return resummed(b"".join(written))


def none_of(_: int) -> list[int]:
    return []


def found(hf: Holdfast) -> list[tuple[str | None, str]]:
    return [(problem.thread, problem.what) for problem in hf.verify().problems]


@every_store("a fork may have a lower number than its origin on PostgreSQL")
@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
def test_a_fork_whose_registration_is_lost_is_named(kind: Kind, cipher: Any, tmp_path: Path) -> None:
    with opened(kind, tmp_path, cipher=cipher) as hf:
        family(hf)
        assert found(hf) == []
        origin, middle, fork = (number(hf, name) for name in ("origin", "middle", "fork"))
    unregister(kind, tmp_path, origin, middle)
    with opened(kind, tmp_path, cipher=cipher) as hf:
        [problem] = hf.verify().problems
        assert problem.thread == "middle"
        assert problem.seqs == (1, 2)
        assert "cells of thread 'origin' but is not registered as a fork" in problem.what
        assert hf.repair(address("sqlite", tmp_path, "new")).ok
    unregister(kind, tmp_path, origin, fork)
    with opened(kind, tmp_path, cipher=cipher) as hf:
        assert {name for name, _ in found(hf)} == {"middle", "fork"}
    with opened("sqlite", tmp_path, "new", cipher) as new:
        assert found(new) == []
        assert len(new.context.store.forks(number(new, "origin"))) == 2


@pytest.mark.parametrize("kind", STORED)
def test_a_registration_that_nothing_explains_is_named(kind: Kind, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf:
        family(hf)
        other, origin, fork = (number(hf, name) for name in ("other", "origin", "fork"))
    register(kind, tmp_path, other, fork)
    with opened(kind, tmp_path) as hf:
        [(thread, what)] = found(hf)
        assert thread == "fork"
        assert "as a fork of thread 'other' but uses nothing of it" in what
    register(kind, tmp_path, origin, other)
    with opened(kind, tmp_path) as hf:
        # What comes with the one explains the other as little.
        assert sorted(str(thread) for thread, _ in found(hf)) == ["fork", "other"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_pruned_dropped_and_forked_again_is_no_cause(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf:
        family(hf)
        hf.thread("fork").save({"nothing": "of the others"})
        for _ in range(2):
            hf.thread("fork").delete("@-2")
        hf.thread("middle").fork("twin", at="@-2")
        hf.thread("small").save({"n": 1})
        hf.thread("small").fork("small fork")
        hf.optimize()
        assert found(hf) == []
        hf.thread("middle").drop()
        assert found(hf) == []
        hf.thread("origin").drop()
        hf.thread("small").drop()
        hf.optimize()
        assert found(hf) == []
        done = hf.repair(address("directory", tmp_path, "new"))
        assert done.ok
    with opened("directory", tmp_path, "new") as new:
        assert found(new) == []


def test_cells_that_only_other_cells_name_are_used_too(tmp_path: Path) -> None:
    """A large dict that has changed in many places is a few cells, and only they name what is the origin's."""
    with opened("memory", tmp_path) as hf:
        agents: dict[str, Any] = {f"agent {i}": {"said": [f"word {i}.{j} " * 9 for j in range(60)]} for i in range(200)}
        hf.thread("origin").save({"agents": agents})
        fork = hf.thread("origin").fork("fork")
        changed = {f"agent {i}": {"said": [f"nothing {i}"]} for i in range(0, 200, 3)}
        fork.save({"agents": {**agents, **changed}})
        fork.delete("@-2")
        store = hf.context.store
        assert isinstance(store, MemoryStore)
        row = checkpoint_at(store, number(hf, "fork"), 2)
        assert row is not None
        assert {span.thread for span in row.refs.spans} == {0}
        assert {log_kind(span.log) for span in row.refs.spans} == {LogKind.NODE}
        assert verify(store).ok
        report = verify(shown(store, forks=none_of))
    assert report.problems == (Problem("fork", (2,), report.problems[0].what),)
    assert "not registered" in report.problems[0].what


def test_a_fork_that_is_dropped_meanwhile_is_no_cause(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as hf:
        family(hf)
        store = hf.context.store

        def forks(of: int) -> list[int]:
            if thread_named(store, "fork") is not None:
                hf.thread("fork").drop()
            return store.forks(of)

        assert verify(shown(store, forks=forks)).problems == ()


def test_forks_that_cannot_be_told_are_said(tmp_path: Path) -> None:
    with opened("postgres", tmp_path) as hf:
        family(hf)
        fork = number(hf, "fork")
    Tables("postgres", tmp_path).execute("DELETE FROM thread WHERE thread_no = ?", fork)
    with opened("postgres", tmp_path) as hf:
        origin = number(hf, "origin")
        missing = f"the thread with number {fork}, a fork of the thread with number {origin}, is missing"
        assert ("origin", missing) in [(thread, what.partition(";")[0]) for thread, what in found(hf)]
        before = hf.thread("origin").load("@4").state
        hf.optimize()
        assert hf.thread("origin").load("@4").state == before
