"""One state machine for every store: Holdfast against a plain dict.

The model keeps deep copies of every state ever saved; after each rule the head of each thread, and now and then every
checkpoint, must load exactly as the model has it, from the working handle and from a fresh one.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import holdfast
from holdfast import Holdfast, Retention
from tests.codec.strategies import identical as same
from tests.selection import on_store, tries

NAMES = ("a", "b", "a/../b", "fork-1", "fork-2", "fork-3")

# Long texts are drawn as the index of one, so that a failing example can be read.
LONG_TEXTS = (*("paragraph " * (60 * n) for n in range(1, 6)), "x" * 17_000, "é" * 20_000)
texts = st.text(max_size=20) | st.integers(0, len(LONG_TEXTS) - 1)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": texts},
    optional={"calls": st.lists(st.integers(), max_size=3), "at": st.floats(allow_nan=False)},
)


def text_of(drawn: str | int) -> str:
    return LONG_TEXTS[drawn] if isinstance(drawn, int) else drawn


def message_of(drawn: dict[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(drawn), "content": text_of(drawn["content"])}


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12))


@dataclass
class Saved:
    seq: int
    id: str
    state: Any
    step: int
    parent: str | None
    label: str | None
    status: str
    deleted: bool = False


@dataclass
class Line:
    saved: list[Saved] = field(default_factory=list)
    head: int = 0
    fork_origins: set[int] = field(default_factory=set)

    def at(self, seq: int) -> Saved:
        return self.saved[seq - 1]

    @property
    def live(self) -> list[Saved]:
        return [saved for saved in self.saved if not saved.deleted]


class HoldfastMachine(RuleBasedStateMachine):
    """Runs on what `open` opens; `reopens` says whether a closed store keeps its data."""

    reopens = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-machine-"))
        self.hf = self.open()
        self.threads = {name: self.hf.thread(name) for name in NAMES}
        self.model: dict[str, Line] = {}
        self.working: dict[str, dict[str, Any]] = {}

    def open(self) -> Holdfast:
        raise NotImplementedError

    def second(self) -> Holdfast:
        """Another handle on the same data."""
        raise NotImplementedError

    def teardown(self) -> None:
        report = self.hf.verify()
        assert report.ok, report.problems
        self.check_everything(self.hf)
        self.hf.close()
        shutil.rmtree(self.folder)

    # -- editing the working copies: what an agent does between saves --------------------------------------------------

    names = st.sampled_from(NAMES)

    def state(self, name: str) -> dict[str, Any]:
        return self.working.setdefault(name, {"messages": [], "step": 0, "files": {}, "archive": []})

    @rule(name=names, new=st.lists(messages, min_size=1, max_size=12))
    def append(self, name: str, new: list[Any]) -> None:
        self.state(name).setdefault("messages", []).extend(map(message_of, new))

    @rule(name=names, at=st.integers(0, 200), text=texts)
    def edit_in_place(self, name: str, at: int, text: str | int) -> None:
        found = self.state(name).get("messages") or []
        if found and type(found[at % len(found)]) is dict:
            found[at % len(found)]["content"] = text_of(text)

    @rule(name=names, keep=st.integers(0, 10), summary=messages)
    def summarise(self, name: str, keep: int, summary: Any) -> None:
        state = self.state(name)
        found = state.get("messages") or []
        state["messages"] = [message_of(summary), *found[len(found) - min(keep, len(found)) :]]

    @rule(name=names, at=st.integers(0, 200), new=messages)
    def insert(self, name: str, at: int, new: Any) -> None:
        found = self.state(name).setdefault("messages", [])
        found.insert(at % (len(found) + 1), message_of(new))

    @rule(name=names)
    def move_to_archive(self, name: str) -> None:
        state = self.state(name)
        state["archive"] = state.pop("messages", [])
        state["messages"] = []

    @rule(name=names, count=st.integers(1, 150), text=texts)
    def write_files(self, name: str, count: int, text: str | int) -> None:
        files = self.state(name).setdefault("files", {})
        for i in range(count):
            files[f"src/{i}.py"] = text_of(text) if i == count - 1 else files.get(f"src/{i}.py", f"print({i})")

    @rule(name=names, at=st.integers(0, 200))
    def remove_file(self, name: str, at: int) -> None:
        files = self.state(name).get("files") or {}
        if files:
            del files[list(files)[at % len(files)]]

    @rule(name=names, key=st.text(max_size=5), value=scalars)
    def set_field(self, name: str, key: str, value: Any) -> None:
        self.state(name)[key] = value

    @rule(name=names, new=st.lists(messages, min_size=1, max_size=12), times=st.integers(1, 5))
    def nested_agent(self, name: str, new: list[Any], times: int) -> None:
        agents = self.state(name).setdefault("agents", [])
        new = new * times
        if type(agents) is list:
            agents.append(
                {
                    "name": f"agent {len(agents)}",
                    "inbox": tuple(map(message_of, new)),
                    "log": list(map(message_of, new)),
                }
            )

    @rule(name=names, at=st.integers(0, 20), new=messages)
    def nested_append(self, name: str, at: int, new: Any) -> None:
        agents = self.state(name).get("agents")
        if type(agents) is list and agents:
            agents[at % len(agents)]["log"].append(message_of(new))

    # -- verbs ------------------------------------------------------------------------------------------------------

    @rule(
        name=names,
        label=st.none() | st.sampled_from(["plan-ready", "done"]),
        status=st.sampled_from(["running", "completed", "failed"]),
        step=st.none() | st.integers(0, 50),
    )
    def save(self, name: str, label: str | None, status: Any, step: int | None) -> None:
        checkpoint = self.threads[name].save(self.state(name), label=label, status=status, step=step)
        self.record(name, checkpoint, self.state(name), label, status, step)

    def record(self, name: str, checkpoint: Any, state: Any, label: str | None, status: str, step: int | None) -> None:
        line = self.model.setdefault(name, Line())
        before = line.at(line.head) if line.head else None
        expected_step = step if step is not None else (before.step + 1 if before else 1)
        assert checkpoint.seq == len(line.saved) + 1
        assert checkpoint.step == expected_step
        assert checkpoint.parent == (before.id if before else None)
        line.saved.append(
            Saved(
                checkpoint.seq, checkpoint.id, copy.deepcopy(state), checkpoint.step, checkpoint.parent, label, status
            )
        )
        line.head = checkpoint.seq

    @rule(name=names, at=st.integers(0, 100))
    def rewind(self, name: str, at: int) -> None:
        if name not in self.model:
            with pytest.raises(holdfast.NotFound):
                self.threads[name].rewind("@-1")
            return
        line = self.model[name]
        target = line.live[at % len(line.live)]
        assert self.threads[name].rewind(target.id).seq == target.seq
        line.head = target.seq
        self.working[name] = copy.deepcopy(target.state)

    @rule(name=names, new_name=names, at=st.integers(0, 100), edited=st.booleans())
    def fork(self, name: str, new_name: str, at: int, edited: bool) -> None:
        if name not in self.model:
            return
        line = self.model[name]
        source = line.live[at % len(line.live)]
        if new_name in self.model:
            with pytest.raises(holdfast.errors.AlreadyExists):
                self.threads[name].fork(new_name, at=source.id)
            return
        state = copy.deepcopy(source.state)
        if edited:
            state["edited"] = True
            forked = self.threads[name].fork(new_name, at=source.id, state=state)
        else:
            forked = self.threads[name].fork(new_name, at=source.id)
        head = forked.head()
        assert head is not None
        assert (head.parent, head.step) == (source.id, source.step)
        self.threads[new_name] = forked
        self.model[new_name] = Line([Saved(1, head.id, state, head.step, head.parent, source.label, source.status)], 1)
        line.fork_origins.add(source.seq)
        self.working[new_name] = copy.deepcopy(state)

    @rule(name=names, at=st.integers(0, 100))
    def delete(self, name: str, at: int) -> None:
        if name not in self.model:
            return
        line = self.model[name]
        target = line.live[at % len(line.live)]
        if target.seq == line.head:
            with pytest.raises(holdfast.errors.Protected):
                self.threads[name].delete(target.id)
            return
        self.threads[name].delete(target.id)
        target.deleted = True
        with pytest.raises(holdfast.NotFound):
            self.threads[name].load(target.id)

    @rule(name=names, keep=st.integers(0, 4), labelled=st.booleans(), completed=st.booleans(), dry=st.booleans())
    def prune(self, name: str, keep: int, labelled: bool, completed: bool, dry: bool) -> None:
        if name not in self.model:
            return
        line = self.model[name]
        retention = Retention(keep_last=keep, keep_labelled=labelled, keep_newest_completed=completed)
        newest_first = line.live[::-1]
        newest_completed = next((s for s in newest_first if s.status == "completed"), None)
        expected = [
            saved
            for place, saved in enumerate(newest_first)
            if place >= keep
            and saved.seq != line.head
            and saved.seq not in line.fork_origins
            and not (labelled and saved.label)
            and not (completed and saved is newest_completed)
        ]
        pruned = self.threads[name].prune(retention, dry_run=dry)
        assert [checkpoint.id for checkpoint in pruned.removed] == [saved.id for saved in expected]
        assert pruned.kept == len(line.live) - len(expected)
        if not dry:
            for saved in expected:
                saved.deleted = True

    @rule(name=names)
    def drop(self, name: str) -> None:
        if name not in self.model:
            return
        self.threads[name].drop()
        del self.model[name]
        self.working.pop(name, None)
        assert self.threads[name].latest() is None

    @rule()
    def optimize(self) -> None:
        assert self.hf.optimize().damaged == 0

    @precondition(lambda self: self.reopens)
    @rule()
    def reopen(self) -> None:
        self.hf.close()
        self.hf = self.open()
        self.threads = {name: self.hf.thread(name) for name in NAMES}

    @rule(name=names, new=messages)
    def stale_handle(self, name: str, new: Any) -> None:
        """Somebody else saves: this handle's save is a Conflict that stores nothing, until it has looked again."""
        mine = self.threads[name]
        if name in self.model:
            assert mine.latest() is not None
        else:
            assert mine.latest() is None
        other_hf = self.second()
        other = other_hf.thread(name)
        state = copy.deepcopy(self.state(name))
        state.setdefault("messages", []).append(message_of(new))
        self.record(name, other.save(state), state, None, "running", None)
        with pytest.raises(holdfast.Conflict):
            mine.save({"lost": True})
        if other_hf is not self.hf:
            other_hf.close()
        latest = mine.latest()
        assert latest is not None
        assert same(latest.state, state)
        self.working[name] = state

    # -- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def heads_are_as_saved(self) -> None:
        for name, line in self.model.items():
            latest = self.threads[name].latest()
            head = line.at(line.head)
            assert latest is not None
            assert latest.id == head.id
            assert same(latest.state, head.state)

    def check_everything(self, hf: Holdfast) -> None:
        assert {info.name for info in hf.threads()} == set(self.model)
        for name, line in self.model.items():
            thread = hf.thread(name)
            assert thread.count() == len(line.live)
            assert [c.id for c in thread.history()] == [s.id for s in line.live[::-1]]
            for saved in line.live:
                loaded = thread.load(saved.id)
                assert same(loaded.state, saved.state)
                assert (loaded.step, loaded.label, loaded.status) == (saved.step, saved.label, saved.status)


class MemoryMachine(HoldfastMachine):
    reopens = False

    def open(self) -> Holdfast:
        return holdfast.open("memory:")

    def second(self) -> Holdfast:
        return self.hf


class SQLiteMachine(HoldfastMachine):
    def open(self) -> Holdfast:
        return holdfast.open(self.folder / "agent.db", durability="off")

    def second(self) -> Holdfast:
        return self.open()


class DirectoryMachine(HoldfastMachine):
    def open(self) -> Holdfast:
        return holdfast.open(f"dir:{self.folder}/agents", durability="off")

    def second(self) -> Holdfast:
        return self.open()


MACHINE_SETTINGS = settings(
    max_examples=tries(25, 10), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMemoryMachine = on_store("memory")(MemoryMachine.TestCase)
TestMemoryMachine.settings = MACHINE_SETTINGS
TestSQLiteMachine = on_store("sqlite")(SQLiteMachine.TestCase)
TestSQLiteMachine.settings = MACHINE_SETTINGS
TestDirectoryMachine = on_store("directory")(DirectoryMachine.TestCase)
TestDirectoryMachine.settings = MACHINE_SETTINGS
