"""A small store with everything in it that can rot, and a judge of what is left when something did."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

import msgspec

import holdfast
from holdfast import Effect, Holdfast, Retention, Run
from holdfast.errors import InvalidArgument, LeaseHeld, NotFound, StoreError
from holdfast.types import MissingValue
from tests.codec.strategies import identical

PROMPT: Final = "You are careful and you answer in one sentence. " * 400  # a shared value
CHECKED: Final = "the marks of a partial load"
# A record of a run in progress, put in place of a newer one, must not expire before the store is judged.
LEASE: Final = 3600.0

Pardon = Literal["older", "labels", "listing", "journal"]
"""What nobody can tell from what is stored. "older": a log that was cut short, as a crash may do, is an older log.
"labels", "listing", "journal": a record and all that would contradict it were changed alike, or it was once so."""


class _Stopped(Exception):
    """A run is left here."""


class Track(msgspec.Struct):
    """A thread as it was before the damage. `line` are the seqs that lead to its head, newest first."""

    head: int
    ids: dict[int, str]
    states: dict[int, Any]
    steps: dict[int, int]
    line: list[int]
    refs: dict[str, int]


class Before(msgspec.Struct):
    """All that the judge knows of a healthy store."""

    threads: dict[str, Track]
    listed: list[Any]
    journals: dict[str, list[Effect]]


# -- the scene ---------------------------------------------------------------------------------------------------------


def begin(url: str) -> None:
    """The first half: older versions of records are kept from here."""
    with holdfast.open(url, durability="off", tools=tools_of([])) as hf:
        for n in range(1, 6):
            hf.thread("merged").save(state_of("merged", n))
        hf.thread("merged").prune(Retention(keep_last=3))
        hf.optimize()
        for n in range(1, 4):
            hf.thread("main").save(state_of("main", n), label="good" if n == 2 else None)
        with suppress(_Stopped), hf.run("job", start={"paid": []}) as run:
            work(run, until=1)
        with hf.run("chat", start={"said": []}, turn="one", lease=LEASE) as run:
            run.finish(run.tool("reply", {"n": 1}))


def finish(url: str) -> None:
    """The second half: all that changes a record."""
    with holdfast.open(url, durability="off", tools=tools_of([])) as hf:
        main = hf.thread("main")
        main.latest()
        main.rewind("@2")
        for n in range(4, 7):
            main.save(state_of("main", n), label="good" if n == 5 else None)
        fork = main.fork("fork", at="@-2")
        fork.save(state_of("fork", 7))
        hf.thread("merged").save(state_of("merged", 6))
        with suppress(_Stopped), hf.run("job") as run:
            work(run, until=2)
        with hf.run("chat", turn="two", lease=LEASE) as run:
            run.finish(run.tool("reply", {"n": 2}))
        with suppress(_Stopped), hf.run("asks", start={}) as run:
            run.wait("allow?", {"sum": 3})
        hf.answer("asks", "allow?", True)


def state_of(name: str, n: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"{name} message {i} " * 6} for i in range(3 * n)],
        "prompt": PROMPT if name != "merged" else "",
        "notes": f"{name} note {n} " * 20,
        "n": n,
    }


def tools_of(acted: list[str]) -> list[Callable[..., Any]]:
    """Tools that say when they act."""

    def pay(n: int) -> dict[str, int]:
        acted.append(f"pay {n}")
        return {"paid": n}

    def reply(n: int) -> dict[str, int]:
        acted.append(f"reply {n}")
        return {"replied": n}

    return [holdfast.tool(in_doubt="ask", identity=("n",))(pay), holdfast.tool(in_doubt="ask")(reply)]


def work(run: Run, until: int) -> None:
    """Pay once in each step; stop in the middle of a step, with a payment recorded in it."""
    for _ in run.steps():
        n = len(run.state["paid"]) + 1
        run.state["paid"].append(run.tool("pay", {"n": n}))
        if n == until:
            raise _Stopped


def observed(url: str) -> Before:
    """What a healthy store holds."""
    with holdfast.open(url, durability="off") as hf:
        report = hf.verify()
        assert report.ok, report.problems
        listed = list(hf.threads())
        tracks: dict[str, Track] = {}
        for info in listed:
            found = {checkpoint.seq: checkpoint for checkpoint in hf.thread(info.name).history()}
            by_id = {checkpoint.id: seq for seq, checkpoint in found.items()}
            line = [info.seq]
            while (parent := found[line[-1]].parent) in by_id:
                line.append(by_id[parent or ""])
            refs = {f"@-{back}": seq for back, seq in enumerate(line, 1)}
            for seq, checkpoint in sorted(found.items()):
                refs[f"@{checkpoint.step}"] = seq
                if checkpoint.label is not None:
                    refs[f"@{checkpoint.label}"] = seq
            states = {seq: hf.thread(info.name).load(checkpoint).state for seq, checkpoint in found.items()}
            ids = {seq: checkpoint.id for seq, checkpoint in found.items()}
            steps = {seq: checkpoint.step for seq, checkpoint in found.items()}
            tracks[info.name] = Track(info.seq, ids, states, steps, line, refs)
        journals = {name: hf.effects(name) for name in tracks if name in ("job", "chat", "asks")}
        return Before(tracks, listed, journals)


# -- the judge ---------------------------------------------------------------------------------------------------------


class Verdict(msgspec.Struct):
    """What came of one damage: whether anything noticed it, what could not be loaded, and what verify found."""

    noticed: list[str] = []
    hurt: set[tuple[str, int]] = set()
    is_found: bool = False
    unopened: bool = False


class Judge:
    """Looks at a store that was damaged, by every verb that reads, then verifies it, then goes on with its runs."""

    def __init__(self, before: Before, pardoned: Collection[Pardon] = ()) -> None:
        self._before = before
        self._pardoned = pardoned
        self._verdict = Verdict([], set())

    def look(self, url: str) -> Verdict:
        acted: list[str] = []
        try:
            hf = holdfast.open(url, durability="off", tools=tools_of(acted))
        except StoreError as error:
            self._verdict.noticed.append(f"open: {error}")
            self._verdict.unopened = self._verdict.is_found = True
            return self._verdict
        try:
            if "older" in self._pardoned:
                self._older(hf)
                return self._verdict
            for name, track in self._before.threads.items():
                self._thread(hf, name, track)
            self._listings(hf)
            self._verify(hf)
            self._resume(hf, acted)
        finally:
            with suppress(StoreError):
                hf.close()
        return self._verdict

    def _tried(self, what: str, verb: Callable[[], Any]) -> Any:
        """What a verb gives, or None where it raised an error of the store's: then somebody noticed."""
        try:
            return verb()
        except StoreError as error:
            self._verdict.noticed.append(f"{what}: {error}")
            return None
        except Exception as error:
            raise AssertionError(f"{what} raised {error!r}") from error

    def _older(self, hf: Holdfast) -> None:
        for name, track in self._before.threads.items():
            with suppress(StoreError):
                latest = hf.thread(name).latest()
                # What was pruned later is there again, too.
                if latest is not None and latest.seq in track.states:
                    assert identical(latest.state, track.states[latest.seq]), f"{name} has another state"
            for seq, id in track.ids.items():
                with suppress(StoreError, NotFound):
                    assert identical(hf.thread(name).load(id).state, track.states[seq]), f"{name} {seq} is another"

    def _thread(self, hf: Holdfast, name: str, track: Track) -> None:
        for seq, id in track.ids.items():
            loaded = self._tried(f"load {name} {seq}", partial(hf.thread(name).load, id))
            if loaded is None:
                self._verdict.hurt.add((name, seq))
                self._partial(hf, name, id, track.states[seq])
            else:
                assert identical(loaded.state, track.states[seq]), f"{name} {seq} has another state"
        latest = self._tried(f"latest of {name}", lambda: (hf.thread(name).latest(),))
        if latest is not None:
            assert latest[0] is not None, f"{name} is said never to have been saved"
            assert latest[0].seq == track.head, f"the latest of {name} is said to be {latest[0].seq}, not {track.head}"
            assert identical(latest[0].state, track.states[track.head]), f"the latest of {name} has another state"
        fallen = self._tried(f"fallback of {name}", lambda: (hf.thread(name).latest(fallback=True),))
        if fallen is not None:
            assert fallen[0] is not None, f"{name} is said never to have been saved"
            # Newer than what was found readable before, if SQLite reads a damaged page at the second try; never older.
            readable = [seq for seq in track.line if (name, seq) not in self._verdict.hurt][:1]
            newer = track.line[: track.line.index(readable[0]) + 1] if readable else track.line
            assert fallen[0].seq in newer, f"{name} fell back to {fallen[0].seq}, not {readable}"
            assert identical(fallen[0].state, track.states[fallen[0].seq])
        for ref, seq in track.refs.items():
            if "labels" in self._pardoned and not ref[1:].removeprefix("-").isdecimal():
                continue
            found = self._tried(f"{name} {ref}", partial(hf.thread(name).load, ref))
            assert found is None or found.seq == seq, f"{name}: {ref} is said to be {found.seq}, not {seq}"
        self._history(hf, name, track)

    def _history(self, hf: Holdfast, name: str, track: Track) -> None:
        expected = sorted(track.ids, reverse=True)
        seen: list[int] = []

        def list_all() -> bool:
            seen.extend(checkpoint.seq for checkpoint in hf.thread(name).history())
            return True

        if self._tried(f"history of {name}", list_all):
            assert seen == expected, f"the history of {name} is said to be {seen}, not {expected}"
        assert seen == [seq for seq in expected if seq in seen], f"the history of {name} is said to be {seen}"

    def _partial(self, hf: Holdfast, name: str, id: str, state: Any) -> None:
        found = self._tried(f"partial load of {name}", lambda: hf.thread(name).load(id, partial=True))
        if found is not None:
            # SQLite may read a damaged page at the second try: then nothing is lost.
            assert found.lost or identical(found.state, state), f"a partial load of {name} says that nothing is lost"
            _require_left(state, found.state)

    def _listings(self, hf: Holdfast) -> None:
        listed = self._tried("threads", lambda: list(hf.threads()))
        if listed is not None and listed != self._before.listed:
            assert "listing" in self._pardoned, f"the threads are said to be {listed}"
            self._verdict.noticed.append("threads: some are not listed, or as they were")
        for name, journal in self._before.journals.items():
            found = self._tried(f"journal of {name}", partial(hf.effects, name))
            if found is not None and "journal" not in self._pardoned:
                assert found == journal, f"the journal of {name} is said to be {found}"

    def _verify(self, hf: Holdfast) -> None:
        try:
            report = hf.verify()
        except StoreError:
            self._verdict.is_found = True
            return
        self._verdict.is_found = not report.ok
        noticed = self._verdict.noticed
        assert not noticed or not report.ok, f"verify found nothing, but {noticed[0]}"
        for name, seq in self._verdict.hurt:
            named = [p for p in report.problems if p.thread in (name, None) and (not p.seqs or seq in p.seqs)]
            reached = [p for p in report.problems if p.thread is not None and p.seqs]
            assert named or reached, f"verify does not name {name} {seq}: {report.problems}"

    def _resume(self, hf: Holdfast, acted: list[str]) -> None:
        """What is recorded is not done again; where that cannot be known, nothing is done."""
        with suppress(StoreError, LeaseHeld, _Stopped), hf.run("job") as run:
            work(run, until=3)
        assert not {"pay 1", "pay 2"} & set(acted), f"what was recorded was done again: {acted}"
        for turn in ("one", "two"):
            with suppress(StoreError, LeaseHeld, InvalidArgument, NotFound), hf.run("chat", turn=turn) as run:
                if run.status != "completed":
                    run.finish(run.tool("reply", {"n": 7}))
        assert not [what for what in acted if what.startswith("reply")], f"a turn was run again: {acted}"


def _require_left(whole: Any, left: Any) -> None:
    if isinstance(left, MissingValue):
        return
    assert type(left) is type(whole), CHECKED
    if isinstance(whole, dict):
        assert set(left) <= set(whole), CHECKED
        for key in left:
            _require_left(whole[key], left[key])
    elif isinstance(whole, list):
        assert len(left) == len(whole), CHECKED
        for one, other in zip(whole, left, strict=True):
            _require_left(one, other)
    else:
        assert identical(whole, left), CHECKED
