"""A scripted agent answers letters, is killed twice, and loses nothing. No network, no model; some seconds.

    python examples/demo.py

The agent runs in a process of its own, so that it can be killed with SIGKILL, which no program can catch. It prints a
line after each save; this process reads the lines, kills it in the middle of a step, starts it again and looks whether
everything that was acknowledged is there.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import holdfast

THREAD = "letters"
LETTERS = 40
KILL_AFTER = (13, 27)  # steps
WRONG = 31  # the letter that gets a refund ten times too high
DEADLINE = 60.0  # seconds

_WORDS = (
    "order parcel arrived late broken invoice amount charged twice card please refund shipping label warehouse "
    "customer service answer week promised replacement colour wrong size return box receipt number thank you regards "
    "since because however although already nobody phone email"
)


# -- the agent: an ordinary loop that saves after each step ------------------------------------------------------------


def run_agent(store: str, hangs_at: int) -> None:
    """Answer the letters that are left. What is done is in the state, and the state is in the store.

    At one letter it hangs half-way, as if its model did not answer, so that it is killed there on any machine.
    """
    with holdfast.open(store) as hf:
        thread = hf.thread(THREAD)
        latest = thread.latest()
        if latest is None:
            state: dict[str, Any] = {"messages": [], "refunds": {}, "next_letter": 1}
            say("start", 0)
        else:
            state = latest.state
            say("resume", latest.step)
        while state["next_letter"] <= LETTERS:
            number = state["next_letter"]
            answer(state, number, refund=refund_for(number) * (10 if number == WRONG else 1))
            if number == hangs_at:
                signal.pause()
            done = number == LETTERS
            checkpoint = thread.save(
                state,
                label=f"letter-{number}",
                status="completed" if done else "running",
                agent="letter-clerk",
            )
            say("saved", checkpoint.step)


def answer(state: dict[str, Any], number: int, *, refund: int) -> None:
    """One step: read a letter, decide, write the answer."""
    state["messages"].append({"role": "user", "content": text(f"letter {number}", 180)})
    state["messages"].append({"role": "assistant", "tool": "refund", "letter": number, "amount": refund})
    state["messages"].append({"role": "assistant", "content": text(f"answer {number}", 120)})
    state["refunds"][str(number)] = refund
    state["next_letter"] = number + 1


def refund_for(number: int) -> int:
    return 5 + digest(f"refund {number}", 1)[0] % 55


def text(seed: str, words: int) -> str:
    """Words without sense, the same in every process."""
    choice = _WORDS.split()
    return " ".join(choice[byte % len(choice)] for byte in digest(seed, words))


def digest(seed: str, length: int) -> bytes:
    return hashlib.shake_128(seed.encode()).digest(length)


def say(event: str, step: int) -> None:
    print(event, step, flush=True)


# -- the process around it: starts the agent, kills it, checks --------------------------------------------------------


class Checks:
    """Says what was checked, and remembers whether all of it held."""

    def __init__(self) -> None:
        self.held = True

    def check(self, what: str, holds: bool) -> None:
        print(f"  {'ok    ' if holds else 'FAILED'}  {what}")
        self.held = self.held and holds


def run_until(store: Path, kill_after: int, acknowledged: int, checks: Checks) -> int:
    """Run the agent and kill it when it has acknowledged a step. Returns the last step it acknowledged."""
    command = [sys.executable, str(Path(__file__).resolve()), "agent", str(store), str(kill_after + 1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        for line in agent.stdout or ():
            event, number = line.split()
            step = int(number)
            if event == "start":
                print(f"  process {agent.pid} found no state and begins with letter 1")
                checks.check("there was nothing to find", not acknowledged)
            elif event == "resume":
                print(f"  process {agent.pid} found step {step} and goes on with letter {step + 1}")
                checks.check("nothing acknowledged was lost", step == acknowledged)
            elif step == kill_after and step < LETTERS:
                agent.send_signal(signal.SIGKILL)
            acknowledged = step
        code = agent.wait(DEADLINE)
    if code == -signal.SIGKILL:
        print(f"  process {agent.pid} saved step {acknowledged} and was killed (SIGKILL) in letter {acknowledged + 1}")
    elif code:
        raise SystemExit(f"the agent failed by itself, with exit code {code}")
    else:
        print(f"  process {agent.pid} finished with step {acknowledged}")
    return acknowledged


def crashes(store: Path, checks: Checks) -> None:
    print(f"1. An agent answers {LETTERS} letters and is killed twice on the way.")
    acknowledged = 0
    for kill_after in (*KILL_AFTER, LETTERS):
        acknowledged = run_until(store, kill_after, acknowledged, checks)
    checks.check(f"all {LETTERS} letters are answered", acknowledged == LETTERS)


def history(hf: holdfast.Holdfast, checks: Checks) -> None:
    print("\n2. Every step is kept. The newest:")
    thread = hf.thread(THREAD)
    for checkpoint in thread.history(4):
        print(f"  step {checkpoint.step}  {checkpoint.label:<10} {checkpoint.status:<9} {checkpoint.size:>6,} bytes")
    kept = list(thread.history())
    checks.check(f"{LETTERS} checkpoints, each once and in order", [c.seq for c in kept] == list(range(LETTERS, 0, -1)))
    expected: dict[str, Any] = {"messages": [], "refunds": {}, "next_letter": 1}
    for number in range(1, LETTERS + 1):
        answer(expected, number, refund=refund_for(number) * (10 if number == WRONG else 1))
    checks.check("the final state is exactly that of an agent nobody killed", thread.load("@-1").state == expected)


def second_try(hf: holdfast.Holdfast, checks: Checks) -> None:
    amount = refund_for(WRONG) * 10
    print(f"\n3. Letter {WRONG} got a refund of {amount}, ten times too much. Fork from before it and do it again:")
    thread = hf.thread(THREAD)
    fork = thread.fork("letters-corrected", at=f"@letter-{WRONG - 1}")
    latest = fork.latest()
    if latest is None:
        raise SystemExit("the fork has no state")
    state = latest.state
    answer(state, WRONG, refund=refund_for(WRONG))
    fork.save(state, label=f"letter-{WRONG}")
    difference = hf.diff(f"{THREAD}@letter-{WRONG}", f"letters-corrected@letter-{WRONG}")
    for change in difference.changes:
        print(f"  {change.kind} {change.path}: {change.before} -> {change.after}")
    checks.check("the two differ in the amount and in nothing else", len(difference.changes) == 2)
    checks.check("the first thread is as it was", thread.step() == LETTERS)


def sizes(hf: holdfast.Holdfast, store: Path, folder: Path, checks: Checks) -> None:
    print("\n4. What it takes on disk:")
    copies = folder / "copies"
    copies.mkdir()
    thread = hf.thread(THREAD)
    for checkpoint in thread.history():
        path = copies / f"{checkpoint.seq}.json"
        path.write_text(json.dumps(thread.load(checkpoint).state), encoding="utf-8")
    full = sum(path.stat().st_size for path in copies.iterdir())
    packed = sum(len(gzip.compress(path.read_bytes())) for path in copies.iterdir())
    last = (copies / f"{LETTERS}.json").stat().st_size
    checks.check("verify: every stored byte is what was written", hf.verify().ok)
    hf.close()  # moves what is still in the write-ahead log into the file
    written = store.stat().st_size
    hf = holdfast.open(store)
    hf.optimize()
    hf.close()
    merged = store.stat().st_size
    for what, size in (
        ("the final state as JSON", last),
        (f"one JSON file per step, {LETTERS} full copies", full),
        ("the same, each file gzipped", packed),
        (f"the store: all {LETTERS} steps and the fork", written),
        ("the store after optimize()", merged),
    ):
        print(f"  {what:<42} {size:>9,} bytes")
    print(f"  The store is {full / merged:.1f} times smaller than the copies.")
    checks.check("the store is smaller than full copies, gzipped or not", merged < min(full, packed))


def main() -> int:
    if sys.argv[1:2] == ["agent"] and len(sys.argv) == 4:
        run_agent(sys.argv[2], int(sys.argv[3]))
        return 0
    if len(sys.argv) > 1:
        print("usage: python examples/demo.py", file=sys.stderr)
        return 2
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as name:
        folder = Path(name)
        store = folder / "demo.db"
        crashes(store, checks)
        with holdfast.open(store) as hf:
            history(hf, checks)
            second_try(hf, checks)
            sizes(hf, store, folder, checks)
    print("\nAll checks held." if checks.held else "\nA check FAILED.")
    return 0 if checks.held else 1


if __name__ == "__main__":
    sys.exit(main())
