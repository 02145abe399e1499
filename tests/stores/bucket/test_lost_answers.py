"""A write whose answer is lost or ambiguous: the caller hears what is true, and never that nothing was changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore import exceptions as failures
from obstore.store import MemoryStore

from holdfast.errors import HoldfastError, OutcomeUnknown, ReadOnly, StoreError
from holdfast.stores.log import objects as module
from holdfast.stores.log.bucket_store import BucketClock
from holdfast.stores.log.device import thread_key
from holdfast.stores.log.objects import Objects, Taken
from holdfast.testing.contract.build import Line, saved, texts_of
from tests.stores.bucket.test_memory import opened

Put = Callable[..., Any]


class Answers:
    """Replaces the answers of the next conditional writes: each function gets the real write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.next: list[Callable[[Callable[[], Any]], Any]] = []
        real = obstore.put

        def put(*args: Any, **options: Any) -> Any:
            if "mode" not in options or not self.next:
                return real(*args, **options)
            return self.next.pop(0)(lambda: real(*args, **options))

        monkeypatch.setattr(obstore, "put", put)
        monkeypatch.setattr(module, "_PAUSE", 0.0)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


def lost(write: Callable[[], Any]) -> Any:
    write()
    raise failures.GenericError("no answer")


def late(write: Callable[[], Any]) -> Any:
    raise failures.GenericError("no answer")


def busy(write: Callable[[], Any]) -> Any:
    """S3 answers 409 when two conditional writes of one key meet. Neither object need exist yet."""
    raise failures.AlreadyExistsError("409 ConditionalRequestConflict")


def test_an_object_whose_answer_was_lost_is_the_writers_own(answers: Answers) -> None:
    objects = Objects(MemoryStore(), "bucket")
    answers.next = [lost, lost]
    objects.create("a", b"mine")
    found = objects.get("a")
    assert found is not None
    assert found.data == b"mine"


def test_a_conflict_without_an_object_is_not_a_loss(answers: Answers) -> None:
    """The first request may still be carried out, so a new plan would meet the writer's own object."""
    objects = Objects(MemoryStore(), "bucket")
    answers.next = [late, busy, busy]
    objects.create("a", b"mine")
    answers.next = [busy]
    with pytest.raises(Taken):
        objects.create("a", b"other")


def test_a_server_that_answers_with_conflicts_only_is_given_up(answers: Answers) -> None:
    objects = Objects(MemoryStore(), "bucket", patience=0.05)
    answers.next = [late, *[busy] * 100_000]
    with pytest.raises(OutcomeUnknown):
        objects.create("a", b"mine")


def test_a_save_whose_outcome_is_unknown_is_not_reported_as_a_conflict(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    line = saved(store, "a", "x")
    monkeypatch.setattr(store.objects, "_patience", -1.0)
    answers.next = [lost]
    with pytest.raises(OutcomeUnknown):
        line.save("y")
    head = opened(tmp_path).head("a")
    assert head is not None
    assert head.thread.count == 2


def test_a_thread_that_was_created_and_cannot_be_read_back_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = opened(tmp_path)
    log = store._device.log(thread_key("a"))
    monkeypatch.setattr(store._device.trust, "is_on", lambda: False)
    create = log._create

    def fail(*_: object) -> None:
        raise HoldfastError("the bucket cannot be reached")

    def created(*args: Any) -> None:
        create(*args)
        monkeypatch.setattr(log, "_look", fail)

    monkeypatch.setattr(log, "_create", created)
    line = Line(store, "a")
    line.save("x")
    assert texts_of(opened(tmp_path), line.span()) == [["x"]]


def test_a_write_to_a_bucket_that_is_gone_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client raises FileNotFoundError for the answer 404, as for a read of a missing object."""

    def gone(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("404 NoSuchBucket")

    objects = Objects(MemoryStore(), "bucket")
    monkeypatch.setattr(obstore, "put", gone)
    with pytest.raises(StoreError, match="there is no such bucket"):
        objects.put("blobs/a", b"value")


def test_a_clock_that_could_not_be_measured_shows_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects(MemoryStore(), "bucket")
    clock = BucketClock(objects, "id")
    with monkeypatch.context() as patched:
        patched.setattr(objects, "head", lambda _: None)
        with pytest.raises(StoreError, match="time is not known yet"):
            clock()
    now = clock().now
    monkeypatch.setattr(objects, "head", lambda _: None)
    assert clock().now >= now


@pytest.mark.parametrize("then", ["refused", "unreadable"])
def test_a_lost_answer_that_cannot_be_found_out_leaves_the_outcome_unknown(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The credentials end between the request that was carried out and the next one."""

    def refused(*_: Any) -> Any:
        raise failures.PermissionDeniedError("403")

    objects = Objects(MemoryStore(), "bucket", patience=0.05)
    answers.next = [lost, refused] if then == "refused" else [lost, busy]
    with monkeypatch.context() as patched:
        if then == "unreadable":
            patched.setattr(obstore, "get", refused)
        with pytest.raises(OutcomeUnknown):
            objects.create("a", b"mine")
    answers.next = [refused]
    with pytest.raises(ReadOnly, match="nothing was changed"):
        objects.create("b", b"mine")
