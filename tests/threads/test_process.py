"""A thread whose worker was killed is free at once: nobody waits for the lease of a process that is gone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import holdfast
from holdfast import SaveTo
from holdfast.stores.contract_runs import Owner
from holdfast.threads import process
from holdfast.threads.scan import thread_named
from tests.waiting import DEADLINE, until

PROGRAM = """
import os, sys, signal
import holdfast
hf = holdfast.open(sys.argv[1])
with hf.run("t", start={"n": 0}, lease=3600) as run:
    run.state["n"] = 1
    run.save()
    print("held", flush=True)
    if len(sys.argv) > 2:
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_worker_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    subprocess.run([sys.executable, "-c", PROGRAM, path], check=False, timeout=DEADLINE)
    with holdfast.open(path) as hf:
        thread = hf.thread("t")
        thread.latest()
        thread.save({"n": 2})
        thread.rewind("@1")
        [found] = hf.interrupted()
        assert (found.thread, found.attempt) == ("t", 1)
        with hf.run("t") as run:
            assert (run.state, run.resumed) == ({"n": 1}, True)
        thread.drop()


def test_saves_together_wait_only_for_leases_that_have_not_ended(tmp_path: Path) -> None:
    """One worker was killed. The other one is on a machine whose processes cannot be seen, and its lease has ended."""
    path = tmp_path / "agent.db"
    subprocess.run([sys.executable, "-c", PROGRAM, path], check=False, timeout=DEADLINE)
    with holdfast.open(path) as hf:
        store = hf.context.store
        with suppress(ZeroDivisionError), hf.run("far", start={}):
            raise ZeroDivisionError
        thread = thread_named(store, "far")
        assert thread is not None
        row = store.run(thread.position.thread)
        assert row is not None
        clock, owner = store.clock(), replace(process.this_process(), host="elsewhere")
        ended = {"owner": owner, "clock": clock.id, "lease_until": clock.now - 1}
        store.claim(row, replace(row, status="running", fence=row.fence + 1, **ended))
        hf.save_together([SaveTo("t", {"n": 2}), SaveTo("far", {"n": 2})])


def test_a_worker_that_lives_does(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, path, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with holdfast.open(path) as hf:
            thread = hf.thread("t")
            thread.latest()
            with pytest.raises(holdfast.LeaseHeld):
                thread.save({"n": 2})
            with pytest.raises(holdfast.LeaseHeld, match="another process holds thread 't'; nothing was changed"):
                thread.rewind("@0")
            with pytest.raises(holdfast.LeaseHeld, match="another process holds thread 't'; nothing was changed"):
                thread.drop()
    finally:
        child.kill()
        child.communicate()


def test_a_process_is_not_dead_because_of_its_name_and_number() -> None:
    """Two machines may have the same name. Without the id of a boot and a namespace, a number proves nothing."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = replace(process.this_process(), pid=ended.pid)
    assert process.is_dead(here)
    unknown: list[dict[str, Any]] = [{"boot": ""}, {"pid_namespace": 0}, {"boot": "", "pid_namespace": 0, "started": 0}]
    for parts in unknown:
        assert not process.is_dead(replace(here, **parts)), parts


def test_without_any_identity_a_process_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems without /proc: both sides know only the host and the number."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(process, "this_process", lambda: holdfast_owner(1))
    assert not process.is_dead(holdfast_owner(ended.pid))
    assert not process.is_alive(holdfast_owner(1))


def holdfast_owner(pid: int) -> Owner:
    return Owner("laptop", "", 0, pid, 0)


def in_another_time() -> list[str]:
    """The command that starts a process in another time namespace, whose clock is ahead by a day."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare")
    command = [unshare, "--time", "--boottime", "86400", "--fork"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this process may not create a time namespace")
    return command


@pytest.mark.parametrize("is_ahead", [True, False])
def test_a_process_in_another_time_namespace_is_not_taken_for_dead(tmp_path: Path, is_ahead: bool) -> None:
    """It shows other start times, and its clock has an offset: neither ends its lease."""
    elsewhere = in_another_time()
    path = tmp_path / "agent.db"
    program = [sys.executable, "-c", PROGRAM, str(path), "wait"]
    holder = subprocess.Popen(
        elsewhere + program if is_ahead else program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    look = f"""
import holdfast
hf = holdfast.open({str(path)!r})
try:
    with hf.run("t"):
        print("taken")
except holdfast.LeaseHeld:
    print("held")
"""
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        command = [sys.executable, "-c", look]
        seen = subprocess.run(
            command if is_ahead else elsewhere + command, capture_output=True, text=True, check=True, timeout=DEADLINE
        )
        assert seen.stdout == "held\n"
    finally:
        holder.communicate("")  # it reads to the end, and then kills itself


ENDED_MAIN_THREAD = """
import ctypes, platform, sys, threading
from holdfast.threads.process import this_process
import msgspec
print(msgspec.json.encode(this_process()).decode(), flush=True)
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # ends this thread, not the process
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc: no process is proven dead")
def test_a_process_is_not_dead_while_a_thread_of_it_is_left() -> None:
    """Of a killed process, too, the main thread may be gone while another one is still in a system call."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDED_MAIN_THREAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        owner = msgspec.json.decode(child.stdout.readline(), type=Owner)
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        assert not process.is_dead(owner)
        child.stdin.close()
        until(lambda: process.is_dead(owner))
