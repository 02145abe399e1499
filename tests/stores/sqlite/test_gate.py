"""The gate: writers of several processes take turns."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import Busy, StoreError
from holdfast.stores.write_queue import Gate
from holdfast.testing.contract.build import saved
from holdfast.threads.scan import thread_named
from tests.stores.sqlite.conftest import Open, output, script

WRITE = """
import sys, time
from holdfast.stores.write_queue import Gate
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import Line
leave = Gate.leave

def leave_late(self):
    time.sleep(0.01)  # the other can come to the gate meanwhile, however fast the disk is
    leave(self)

Gate.leave = leave_late
store = SQLiteStore(sys.argv[1], namespace="default", durability="full")
line = Line(store, sys.argv[2])
line.save("ready")
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[4])):
    before = store.head(sys.argv[3]).thread.position.last
    line.save("x")
    if before <= int(sys.argv[4]):  # else the other has done all of its own
        print(store.head(sys.argv[3]).thread.position.last - before)
store.close()
"""
SAVES = 40


def test_two_processes_share_the_store_fairly(path: Path, open_store: Open) -> None:
    """While one of them saves, the other gets to save once or twice: neither saves again and again meanwhile."""
    children = [script(WRITE, path, *names, f"{SAVES}", stdin=subprocess.PIPE) for names in ("ab", "ba")]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n", child.stderr and child.stderr.read()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        between = [int(line) for line in output(child).split()]
        in_turn = sum(1 <= saves <= 2 for saves in between)
        assert in_turn > len(between) / 4, between  # nearly all of them; without the gate, nearly none
    store = open_store()
    for name in "ab":
        found = thread_named(store, name)
        assert found is not None
        assert found.position.last == SAVES + 1


def test_a_gate_that_is_held_makes_it_busy(path: Path, open_store: Open) -> None:
    line = saved(open_store(), "t", "x")
    other = open_store(busy_timeout=0.1)
    gate = Gate(str(path), 1.0)
    gate.enter()
    with pytest.raises(Busy, match=r"store\.db-gate.*Try again"):
        saved(other, "u", "x")
    assert thread_named(other, "t") is not None, "reading takes no gate"
    gate.leave()
    saved(other, "u", "x")
    line.save("y")
    gate.close()


def test_whoever_waits_is_next(path: Path) -> None:
    """A writer that has just left finds the turnstile taken by the one that waits."""
    holder, waiter, comer = (Gate(str(path), 0.05) for _ in range(3))
    holder.enter()
    with pytest.raises(Busy):
        waiter.enter()
    waiter._take(waiter._turnstile, time.monotonic() + 1)  # as if it were waiting for the gate
    holder.leave()
    with pytest.raises(Busy):
        holder.enter()
    with pytest.raises(Busy):
        comer.enter()
    waiter._take(waiter._gate, time.monotonic())
    for gate in (holder, waiter, comer):
        gate.close()


def test_a_failed_wait_gives_the_turnstile_back(path: Path) -> None:
    holder, waiter, comer = (Gate(str(path), 0.02) for _ in range(3))
    holder.enter()
    with pytest.raises(Busy):
        waiter.enter()
    holder.leave()
    comer.enter()
    for gate in (holder, waiter, comer):
        gate.close()


def test_the_lock_files_are_private_and_never_the_database(path: Path) -> None:
    gate = Gate(str(path), 1.0)
    gate.enter()
    gate.leave()
    gate.close()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["store.db-gate", "store.db-turn"]
    assert all(stat.S_IMODE(entry.stat().st_mode) == 0o600 for entry in path.parent.iterdir())


def test_a_lock_file_that_cannot_be_opened(path: Path) -> None:
    path.with_name("store.db-turn").mkdir()
    with pytest.raises(StoreError, match="cannot open the lock file"):
        Gate(str(path), 1.0).enter()


def test_a_lock_file_that_cannot_be_looked_at_is_closed_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unseen(*args: object, **kwargs: object) -> os.stat_result:
        raise OSError(errno.EIO, "the disk does not answer")

    gate = Gate(str(path), 0.1)
    before = sorted(os.listdir("/dev/fd"))
    for call in ("fstat", "stat"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, unseen)
            with pytest.raises(StoreError, match="lock file"):
                gate.enter()
        gate.leave()
    gate.close()
    assert sorted(os.listdir("/dev/fd")) == before
    with closing(Gate(str(path), 0.1)) as other:
        other.enter()
