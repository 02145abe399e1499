"""References as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import InvalidArgument, NotFound
from holdfast.inspect import find, moment_of, split, state_of
from tests.cases import for_each
from tests.covers import covers
from tests.runs.conftest import World


@pytest.fixture
def saved(world: World) -> World:
    thread = world.open().thread("agent/1")
    for number in range(5):
        thread.save({"n": number}, label="good" if number == 2 else None)
    with world.open().run("run", start={"n": "first"}) as run:  # whose steps count from 0
        for n in ("second", "third"):
            run.state["n"] = n
            run.save()
    world.open().thread("me@home").save({"n": "mail"})
    return world


@for_each(
    ("reference", "number"),
    [
        ("agent/1", 4),
        ("agent/1@", 4),
        ("agent/1@-1", 4),
        ("agent/1@-2", 3),
        ("agent/1@2", 1),
        ("agent/1@good", 2),
        ("agent/1@00000004", 3),
        ("run@00000002", "second"),
        ("run@0000002", "third"),
        ("run@2", "third"),
        ("me@home", "mail"),
        ("me@home@-1", "mail"),
        ("agent/1@2999-01-01", 4),
    ],
)
def test_what_each_names(saved: World, reference: str, number: object) -> None:
    hf = saved.open()
    found = find(hf, reference)
    assert state_of(hf, found).state == {"n": number}
    assert found.is_head == (number in (4, "mail", "third"))


def test_an_id_in_full_and_a_moment(saved: World) -> None:
    hf = saved.open()
    third = find(hf, "agent/1@3").checkpoint
    assert find(hf, f"agent/1@{third.id}").checkpoint == third
    assert find(hf, f"agent/1@{third.id[14:]}").checkpoint == third  # enough of its end
    assert find(hf, f"agent/1@{third.created_at.isoformat()}").checkpoint == third
    assert find(hf, f"agent/1@{third.created_at.replace(tzinfo=None).isoformat()}").checkpoint == third


@covers("ares/CheckpointError.display")
@for_each(
    ("reference", "message"),
    [
        ("agent/2", "there is no thread 'agent/2'; did you mean 'agent/1'?"),
        ("nothing like it", "there is no thread 'nothing like it'"),
        ("agent/1@goood", "thread 'agent/1' has no checkpoint '@goood'; did you mean '@good'?"),
        ("agent/1@99", "thread 'agent/1' has no checkpoint '@99'"),
        ("agent/1@-9", "thread 'agent/1' has no checkpoint '@-9'"),
        ("agent/1@2001-01-01", "thread 'agent/1' has no checkpoint from '2001-01-01' or earlier"),
        ("agent/1@ffffffff", "thread 'agent/1' has no checkpoint '@ffffffff'"),
        ("x\x1b[2J", "there is no thread 'x\\x1b[2J'"),
    ],
)
def test_what_is_not_there(saved: World, reference: str, message: str) -> None:
    with pytest.raises(NotFound) as error:
        find(saved.open(), reference)
    assert str(error.value).startswith(message)


def test_a_reference_is_a_text(saved: World) -> None:
    for odd in ("", None, 3):
        with pytest.raises(InvalidArgument):
            split(saved.open(), odd)  # type: ignore[arg-type] # what is refused


def test_dates() -> None:
    assert moment_of("2026-11-15") == datetime(2026, 11, 16, tzinfo=UTC) - timedelta(microseconds=1)
    assert moment_of("2026-11-15T10:00") == datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert moment_of("2026-11-15 10:00:30+02:00") == datetime(2026, 11, 15, 8, 0, 30, tzinfo=UTC)
    for odd in ("good", "2026", "2026-13-01", "12", "2026-11-15Tnoon"):
        assert moment_of(odd) is None
