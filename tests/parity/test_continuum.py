"""Continuum's checkpoint writer: what it saves, loads, lists, deletes and verifies, by Holdfast's verbs."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import NOT_LOADED, Damaged, Holdfast, HoldfastError, NotFound, Protected, Retention, Usage
from tests.parity.covering import covers
from tests.parity.damaging import damage, file_address

SESSION = "a1b2c3d4"


def state_at(n: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"message {i}"} for i in range(n)],
        "tool_calls_pending": [{"id": "call_1", "name": "search", "arguments": {"q": "ink", "limit": 3}}],
        "tool_results": {"call_0": {"found": [1, 2.5, None, True]}},
    }


@covers(
    "continuum",
    "CheckpointData",
    "CheckpointData.session_id",
    "CheckpointData.trigger",
    "CheckpointData.iteration",
    "CheckpointData.messages",
    "CheckpointData.tool_calls_pending",
    "CheckpointData.tool_results",
    "CheckpointData.tokens_used",
    "CheckpointData.cost_estimate",
    "CheckpointData.resume_hint",
    "AgentId",
)
def test_all_that_an_agent_needs_is_saved_as_one_and_loaded_as_one(hf: Holdfast) -> None:
    hf.thread(SESSION).save(
        state_at(3),
        step=7,
        trigger="after tool call",
        usage=Usage(total=100, cost=0.1 + 0.2),
        resume_hint="wait for the search",
        agent="librarian",
    )
    latest = hf.thread(SESSION).latest()
    assert latest is not None
    assert latest.state == state_at(3)
    assert (latest.thread, latest.step, latest.trigger) == (SESSION, 7, "after tool call")
    assert latest.usage == Usage(total=100, cost=0.30000000000000004)
    assert (latest.resume_hint, latest.agent) == ("wait for the search", "librarian")


@covers("continuum", "CheckpointData.tool_results", "CheckpointData.resume_hint", "CheckpointData.cost_estimate")
def test_what_may_be_missing_is_none_and_a_cost_that_cannot_come_back_is_refused(hf: Holdfast) -> None:
    thread = hf.thread(SESSION)
    thread.save({"messages": [], "tool_calls_pending": [], "tool_results": None})
    latest = thread.latest()
    assert latest is not None
    assert latest.state["tool_results"] is None
    assert (latest.resume_hint, latest.usage) == (None, None)
    spent = 0.0
    for step in range(2, 40):
        spent += 0.0017
        thread.save({}, step=step, usage={"total": step * 100, "cost": spent})
        usage = thread.load(f"@{step}").usage
        assert usage is not None
        assert (usage.total, usage.cost) == (step * 100, spent)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(holdfast.InvalidArgument):
            thread.save({}, usage={"cost": wrong})


@covers("continuum", "CheckpointData.checkpoint_id", "CheckpointData.created_at", "CheckpointId", "SessionId")
def test_ids_are_made_anew_sessions_are_named_and_times_are_utc(hf: Holdfast) -> None:
    before = datetime.now(UTC)
    names = [uuid.uuid4().hex[:8], "default", "../../etc/passwd", "two words", "名前"]
    saved = [hf.thread(name).save({"name": name}) for name in names for _ in range(2)]
    assert len({uuid.UUID(checkpoint.id) for checkpoint in saved}) == len(saved)
    for checkpoint in saved:
        assert hf.thread(checkpoint.thread).load(checkpoint.id).state == {"name": checkpoint.thread}
        assert checkpoint.created_at.utcoffset() == timedelta(0)
        assert before <= checkpoint.created_at <= datetime.now(UTC)
    assert sorted(info.name for info in hf.threads()) == sorted(names)


@covers(
    "continuum",
    "CheckpointMeta",
    "CheckpointMeta.checkpoint_id",
    "CheckpointMeta.session_id",
    "CheckpointMeta.created_at",
    "CheckpointMeta.trigger",
    "CheckpointMeta.iteration",
    "CheckpointMeta.checksum",
    "CheckpointSystemTrait.list",
)
def test_the_list_shows_what_is_known_of_each_newest_first_and_no_state(hf: Holdfast) -> None:
    thread = hf.thread(SESSION)
    saved = [thread.save(state_at(n), step=n, trigger=f"turn {n}") for n in (1, 2, 5)]
    listed = list(thread.history())
    assert [(each.step, each.trigger) for each in listed] == [(5, "turn 5"), (2, "turn 2"), (1, "turn 1")]
    assert all(each.state is NOT_LOADED for each in listed)
    for one, other in zip(listed, reversed(saved), strict=True):
        assert (one.id, one.thread, one.created_at, one.digest) == (other.id, SESSION, other.created_at, other.digest)
    assert len({each.digest for each in listed}) == 3


@covers("continuum", "SessionMeta")
def test_the_list_of_sessions_says_where_each_is(hf: Holdfast) -> None:
    hf.thread("one").save({"n": 1}, step=4, agent="librarian", status="waiting")
    hf.thread("two").save({"n": 1})
    hf.thread("two").save({"n": 2}, status="completed", expect=holdfast.ANY)
    one, two = hf.threads()
    assert (one.name, one.step, one.agent, one.status, one.count) == ("one", 4, "librarian", "waiting", 1)
    assert (two.name, two.step, two.status, two.count) == ("two", 2, "completed", 2)
    assert one.updated_at <= two.updated_at


@covers("continuum", "CheckpointWriter.new", "test_checkpoint_writer_creation", "save creates the session")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_store_is_made_where_the_caller_says_and_a_session_when_it_is_saved_to(kind: str, tmp_path: Path) -> None:
    address = file_address(kind, tmp_path)
    place = tmp_path / ("store.db" if kind == "sqlite" else "store")
    assert not place.exists()
    with holdfast.open(address, durability="off") as hf:
        assert place.exists()
        thread = hf.thread(SESSION)
        assert list(hf.threads()) == []
        thread.save({"n": 1})
        assert [info.name for info in hf.threads()] == [SESSION]
    with holdfast.open(address, durability="off") as hf:
        assert hf.thread(SESSION).step() == 1


@covers("continuum", "CheckpointWriter.with_max_backups")
def test_how_many_old_ones_are_kept_is_a_choice_and_all_by_default(url: str) -> None:
    with holdfast.open(url, durability="off", retention=Retention(keep_last=3)) as hf:
        for n in range(8):
            hf.thread(SESSION).save({"n": n}, expect=holdfast.ANY)
        hf.maintain()
        assert [checkpoint.step for checkpoint in hf.thread(SESSION).history()] == [8, 7, 6]
    with holdfast.open(url, durability="off", namespace="other") as hf:
        for n in range(8):
            hf.thread(SESSION).save({"n": n}, expect=holdfast.ANY)
        hf.maintain()
        assert hf.thread(SESSION).count() == 8


@covers("continuum", "CheckpointSystemTrait")
def test_every_verb_is_there_to_be_awaited(hf: Holdfast) -> None:
    async def agent() -> None:
        thread = hf.aio.thread(SESSION)
        first = await thread.save(state_at(1))
        second = await thread.save(state_at(2))
        latest = await thread.latest()
        assert latest is not None
        assert latest.id == second.id
        assert (await thread.load(first.id)).state == state_at(1)
        assert [each.id async for each in thread.history()] == [second.id, first.id]
        await thread.delete(first.id)
        assert [each.id async for each in thread.history()] == [second.id]
        assert (await hf.aio.verify()).ok

    asyncio.run(agent())


@covers("continuum", "CheckpointSystemTrait.save", "CheckpointSystemTrait.load", "test_save_and_load_checkpoint")
def test_save_gives_the_id_by_which_it_is_loaded_and_the_newest_has_it(hf: Holdfast) -> None:
    first = hf.thread(SESSION).save(
        {"messages": [{"role": "user", "content": "test"}], "tool_calls_pending": [], "tool_results": None},
        step=1,
        trigger="manual",
        usage={"total": 100, "cost": 0.01},
    )
    latest = hf.thread(SESSION).latest()
    assert latest is not None
    assert (latest.id, latest.step) == (first.id, 1)
    second = hf.thread(SESSION).save({"n": 2}, expect=first)
    newest = hf.thread(SESSION).latest()
    assert newest is not None
    assert newest.id == second.id
    assert hf.thread(SESSION).load(first.id).state["messages"] == [{"role": "user", "content": "test"}]


@covers("continuum", "load of an unknown session", "list of an unknown session", "load of an unknown id")
def test_where_nothing_was_saved_there_is_nothing(hf: Holdfast) -> None:
    thread = hf.thread("never saved")
    assert thread.latest() is None
    assert thread.head() is None
    assert list(thread.history()) == []
    with pytest.raises(NotFound):
        thread.load(str(uuid.uuid4()))
    checkpoint = hf.thread(SESSION).save({"n": 1})
    with pytest.raises(NotFound):
        hf.thread(SESSION).load(str(uuid.uuid4()))
    with pytest.raises(NotFound):
        thread.load(checkpoint.id)  # it is another session's


@covers(
    "continuum",
    "CheckpointSystemTrait.delete",
    "delete leaves the others",
    "delete of an unknown id",
    "Layer2Error.CheckpointNotFound",
)
def test_delete_takes_one_and_says_if_there_is_none(hf: Holdfast) -> None:
    thread = hf.thread(SESSION)
    first, second, third = (thread.save(state_at(n)) for n in (1, 2, 3))
    thread.delete(second.id)
    assert [each.id for each in thread.history()] == [third.id, first.id]
    assert thread.load(first).state == state_at(1)
    assert thread.load(third).state == state_at(3)
    for unknown in (second.id, str(uuid.uuid4())):
        with pytest.raises(NotFound, match="no checkpoint"):
            thread.delete(unknown)
    with pytest.raises(Protected):
        thread.delete(third.id)  # or nothing would be left to go on from
    latest = thread.latest()
    assert latest is not None
    assert latest.id == third.id


@covers(
    "continuum",
    "CheckpointSystemTrait.verify",
    "verify of a missing checkpoint",
    "load checks",
    "list passes over damage",
    "Layer2Error",
    "Layer2Error.CheckpointCorrupted",
)
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_one_checkpoint_is_verified_by_loading_it_and_the_report_names_it(kind: str, tmp_path: Path) -> None:
    address = file_address(kind, tmp_path)
    with holdfast.open(address, durability="off") as hf:
        saved = [hf.thread(SESSION).save({"said": f"word {n}"}, expect=holdfast.ANY) for n in range(4)]
        assert hf.verify().ok
    damage(address, SESSION, seq=2)
    with holdfast.open(address, durability="off") as hf:
        thread = hf.thread(SESSION)
        with pytest.raises(Damaged) as caught:
            thread.load(saved[1].id)
        assert isinstance(caught.value, HoldfastError)
        assert [thread.load(saved[n]).state for n in (0, 2, 3)] == [{"said": f"word {n}"} for n in (0, 2, 3)]
        with pytest.raises(NotFound):
            thread.load(str(uuid.uuid4()))
        assert {seq for problem in hf.verify().problems for seq in problem.seqs} >= {2}
        assert {1, 4}.isdisjoint(seq for problem in hf.verify().problems for seq in problem.seqs)
        assert [each.seq for each in thread.history(skip_damaged=True)][:2] == [4, 3]
        assert 1 in [each.seq for each in thread.history(skip_damaged=True)]


@covers("continuum", "save keeps what was before")
def test_what_was_the_newest_is_kept_as_it_was(hf: Holdfast) -> None:
    thread, state = hf.thread(SESSION), state_at(1)
    for n in range(2, 12):
        thread.save(state)
        state["messages"].append({"role": "user", "content": f"more {n}"})
        state["messages"][0]["content"] = f"changed {n}"
    states = [thread.load(each).state for each in thread.history()]
    assert [len(each["messages"]) for each in states] == list(range(10, 0, -1))
    assert [each["messages"][0]["content"] for each in states] == [
        *(f"changed {n}" for n in range(10, 1, -1)),
        "message 0",
    ]


@covers("continuum", "save replaces the newest at once")
def test_a_reader_finds_the_old_newest_or_the_new_one(hf: Holdfast) -> None:
    ended = threading.Event()

    def write() -> None:
        try:
            for n in range(1, 60):
                hf.thread(SESSION).save({"n": n, "items": [n] * 200}, step=n, expect=holdfast.ANY)
        finally:
            ended.set()

    hf.thread(SESSION).save({"n": 0, "items": [0] * 200}, step=0)
    writing = threading.Thread(target=write)
    writing.start()
    seen: list[int] = []
    while not seen or seen[-1] != 59:
        assert not ended.is_set() or hf.thread(SESSION).step() == 59, "the writer failed"
        latest = hf.thread(SESSION).latest()
        assert latest is not None
        assert latest.state["items"] == [latest.state["n"]] * 200
        assert latest.step == latest.state["n"]
        seen.append(latest.step)
    writing.join()
    assert seen == sorted(seen)


@covers("continuum", "layout by session", "layout of text", "layout names the newest", "load without a pointer")
def test_a_directory_has_a_folder_for_each_session_of_lines_that_any_tool_reads(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/agents", durability="off") as hf:
        for name in ("one", "two"):
            for n in range(3):
                hf.thread(name).save({"said": f"word {n} of {name}"}, expect=holdfast.ANY)
    logs = {log.parent.name: log for log in (tmp_path / "agents").rglob("log.jsonl")}
    assert set(logs) == {"one", "two"}
    for name, log in logs.items():
        records = [json.loads(line) for line in log.read_text().splitlines()]
        newest = [record for record in records if record["t"] == "checkpoint"][-1]
        assert f"word 2 of {name}" in json.dumps(newest)
        assert sorted(path.name for path in log.parent.iterdir()) == ["log.jsonl"]  # nothing beside it points anywhere
    with holdfast.open(f"dir:{tmp_path}/agents", durability="off") as hf:
        latest = hf.thread("one").latest()
        assert latest is not None
        assert latest.state == {"said": "word 2 of one"}


@covers("continuum", "layout backup")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_second_copy_of_what_is_stored_is_whole(kind: str, tmp_path: Path) -> None:
    address, copied = file_address(kind, tmp_path), file_address(kind, tmp_path, "copy")
    with holdfast.open(address, durability="off") as hf:
        hf.thread(SESSION).save(state_at(2))
        assert hf.backup(copied).report.ok
        hf.thread(SESSION).save(state_at(3), expect=holdfast.ANY)
    with holdfast.open(copied, durability="off") as hf:
        latest = hf.thread(SESSION).latest()
        assert latest is not None
        assert latest.state == state_at(2)


@covers("continuum", "extra fields of the caller")
def test_whatever_else_is_in_a_state_is_kept_and_the_callers_object_is_not_changed(hf: Holdfast) -> None:
    state = {**state_at(1), "_checksum": "mine", "_version": 7, "notes": ({"deep": [b"\x00", None]}, 1)}
    before = copy.deepcopy(state)
    metadata = {"own": ["entry"], "checksum": 1}
    hf.thread(SESSION).save(state, metadata=metadata)
    assert state == before
    assert metadata == {"own": ["entry"], "checksum": 1}
    latest = hf.thread(SESSION).latest()
    assert latest is not None
    assert latest.state == before
    assert latest.metadata == metadata
