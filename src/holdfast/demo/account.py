"""The report on a play: what happened, how many kills and calls it had, and whether all checks hold.

The checks read the ledger and the model server's own count of requests, never Holdfast's journal.
"""

from __future__ import annotations

import signal
from collections import Counter

import holdfast
from holdfast.demo.play import Papers, Play, outcome, when


def timeline(papers: Papers) -> list[tuple[str, str]]:
    rows: list[tuple[float, str]] = []
    claims = 0
    started: dict[int, str] = {}
    for event in papers.records("events.jsonl"):
        who = f"clerk {event['pid']}"
        call = event.get("call", "")
        match event["event"]:
            case "claim":
                rows.append((event["at"], f"{who} {'resumes' if claims else 'starts'} in step {event['step']}"))
                claims += 1
            case "begin":
                started[event["pid"]] = call
            case "probe":
                rows.append((event["at"], f"{who} asks the bank about {call}: {outcome(event)}"))
            case "model" | "tool" if event["recorded"]:
                known = f"{who} does not repeat "
                if rows[-1][1].startswith(known):
                    rows[-1] = (rows[-1][0], f"{rows[-1][1]}, {call}")
                else:
                    rows.append((event["at"], known + call))
            case "leave" if started.get(event["pid"], "").startswith("dispute"):
                rows.append((event["at"], f"{who} suspends the run: {started[event['pid']]} is in doubt"))
            case _:
                pass
    kills, settled = papers.records("kills.jsonl"), papers.records("settled.jsonl")
    rows += [(kill["at"], f"clerk {kill['pid']} KILLED {when(kill['during'])}") for kill in kills]
    rows += [(said["at"], f"a person settles {said['call']}: {outcome(said)}") for said in settled]
    rows.sort()
    return [(f"{at - rows[0][0]:6.2f} s", text) for at, text in rows]


def figures(papers: Papers, calm: Papers) -> list[tuple[str, str]]:
    events = papers.records("events.jsonl")
    answered = Counter((event["event"], event["recorded"]) for event in events if event["event"] in ("model", "tool"))
    claims = sum(event["event"] == "claim" for event in events)
    requests, needed = len(papers.lines("requests.jsonl")), len(calm.lines("requests.jsonl"))
    probes = [event["happened"] for event in events if event["event"] == "probe"]
    settled = [f"{record['call']}: {outcome(record)}" for record in papers.records("settled.jsonl")]
    kinds = Counter(line.partition(",")[0] for line in papers.lines("ledger.csv"))
    return [
        ("kills (SIGKILL)", str(len(papers.lines("kills.jsonl")))),
        ("resumes", str(claims - 1)),
        ("model requests, counted by the server", f"{requests}; a run without kills makes {needed}"),
        ("model calls answered from the journal", str(answered["model", True])),
        ("tool calls made", str(answered["tool", False])),
        ("tool calls answered without a call", f"{answered['tool', True]}, from the journal, the bank or a person"),
        ("ledger", f"{kinds['pay']} payments, {kinds['dispute']} disputes"),
        ("in doubt, settled by asking the bank", f"{len(probes)}; {sum(probes)} of these had happened"),
        ("in doubt, settled by a person", "; ".join(settled)),
        ("checkpoints", str(sum(info.count for info in _threads(papers)))),
    ]


def _threads(papers: Papers) -> list[holdfast.types.ThreadInfo]:
    with holdfast.open(papers.folder / "agent.db") as hf:
        return list(hf.threads())


def checks(play: Play, calm: Play, codes: list[int]) -> list[tuple[str, bool]]:
    """The checks, each with its outcome."""
    papers = play.papers
    ledger, budget = papers.lines("ledger.csv"), papers.lines("budget.csv")
    kills, settled = len(papers.lines("kills.jsonl")), papers.records("settled.jsonl")
    requests, needed = len(papers.lines("requests.jsonl")), len(calm.papers.lines("requests.jsonl"))
    turns = {record["turn"] for record in papers.records("requests.jsonl")}
    payments = sum(line.startswith("pay") for line in papers.expected)
    return [
        ("clerks were killed, and the work was completed", kills > 0 and play.completed),
        ("the ledger has every payment and every dispute exactly once", sorted(ledger) == sorted(papers.expected)),
        ("every payment was reserved exactly once", len(budget) == len(set(budget)) == payments),
        ("the model got every request", turns == set(range(1, needed + 1))),
        ("no kill cost more than one reply of the model", requests - needed <= kills),
        ("a call was in doubt, and a person settled it", any(record["happened"] for record in settled)),
        ("the final state is exactly that of the run that was not killed", play.state == calm.state),
        ("verify: every stored byte is what was written", play.hf.verify().ok),
        # A clerk that has just started does not handle SIGTERM yet, and dies of it.
        ("every clerk was killed, or stopped when the work was done", set(codes) <= {0, -signal.SIGTERM}),
    ]
