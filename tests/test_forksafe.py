"""Objects are renewed in a forked child, and only there, as long as they exist. Interrupts do no harm to a fork."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import forksafe
from tests.selection import IN_FULL
from tests.stores.sqlite.conftest import output, script


class Thing:
    def __init__(self) -> None:
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1


def test_things_are_renewed_in_the_child() -> None:
    thing = Thing()
    forksafe.renew_in_child(thing)
    forksafe.renew_in_child(Thing())  # freed at once
    child = os.fork()
    if not child:
        os._exit(thing.renewed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert thing.renewed == 0


# Python ignores an exception in a hook and continues with the next hook. Each round interrupts the hooks at another
# instruction, in the parent or in the child.
STRUCK = """
import faulthandler, os, signal, sys, traceback
from holdfast import forksafe
from holdfast.errors import StoreError
from holdfast.stores.log import DirectoryStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.connection import opening
from holdfast.testing.contract.build import saved

faulthandler.dump_traceback_later(100, exit=True)
sys.unraisablehook = lambda unraisable: None
forksafe._PATIENCE = 0.05
folder = sys.argv[1]
stores = [
    SQLiteStore(f"{folder}/a.db", namespace="default", durability="off"),
    DirectoryStore(f"{folder}/b", namespace="default", durability="off"),
]
class Renewed:
    count = 0
    def renew(self):
        self.count += 1
renewed = Renewed()
forksafe.renew_in_child(renewed)
HOOKS = {"_before", "_in_parent", "_in_child", "_renew_all"}
left, struck = -1, None

def trace(frame, event, argument):
    global left, struck
    if "/holdfast/" not in frame.f_code.co_filename:
        return None
    frame.f_trace_opcodes = True
    if event == "opcode":
        left -= 1
        if left == 0:
            names = set()
            while frame is not None:
                names.add(frame.f_code.co_name)
                frame = frame.f_back
            struck = names & HOOKS or {"wrapper"}
            raise KeyboardInterrupt
    return trace

def fork(at=0):
    global left, struck
    left, struck = at or -1, None
    if at:
        sys.settrace(trace)
    try:
        return os.fork()
    finally:
        sys.settrace(None)

def check_child(number):
    signal.alarm(60)
    assert renewed.count >= 1, struck
    assert not opening.lock.locked()
    for store in stores:
        if store is stores[0] and store.writer.refusal is None:
            assert store.writer.connection is None and not store._readers.idle, struck
        try:
            saved(store, f"child {number}", "x")
        except StoreError as error:
            assert "forked during a call" in str(error), error
            assert struck == {"_before"}, struck
    for kind, path in ((SQLiteStore, "a.db"), (DirectoryStore, "b")):
        kind(f"{folder}/{path}", namespace="default", durability="off").close()

def run(pid, check, number):
    if pid:
        assert os.waitpid(pid, 0)[1] == 0, (number, struck)
        return
    try:
        check(number)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)

read, write = os.pipe()
for store in stores:
    saved(store, "t", "x")
    store.threads(prefix="", after=None, limit=1)

at, hooks = int(sys.argv[2]) - int(sys.argv[3]), set()
while True:
    at += int(sys.argv[3])
    pid = fork(at)
    if not pid:
        os.write(write, ",".join(struck or [""]).encode() + b"\\n")
    run(pid, check_child, at)
    seen = set(os.read(read, 1000).decode().strip().split(",")) | (struck or set())
    hooks |= seen
    # Nothing stays locked in the parent, and the next fork pauses every store.
    assert not opening.lock.locked(), struck
    for store in stores:
        saved(store, f"parent {at}", "x")
    struck = None
    run(fork(), check_child, -at)
    if seen == {""}:
        break
assert hooks >= HOOKS - {"_renew_all"}, hooks  # which may be shorter than a stride
for store in stores:
    assert not list(store.check())
    store.close()
print("done")
"""


STEP = 23


@pytest.mark.parametrize("first", range(1, STEP + 1) if IN_FULL else [1])
def test_an_interrupt_at_any_point_of_the_hooks_does_no_harm(tmp_path: Path, first: int) -> None:
    assert output(script(STRUCK, tmp_path, str(first), str(STEP))) == "done\n"
