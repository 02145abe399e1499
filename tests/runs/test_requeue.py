"""A run is queued again for a worker, and a fork gets its first run with the handler of its origin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Conflict, Holdfast, InvalidArgument, NotFound, Run
from holdfast.runs.work_queue import Requeue, requeue_of
from holdfast.threads.scan import thread_named


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open("memory:") as opened:
        yield opened


def clerk(run: Run) -> None:
    if run.state.get("fails"):
        raise ValueError("no")
    run.finish(run.state["n"])


def requeue(hf: Holdfast, name: str) -> Requeue:
    row = thread_named(hf.context.store, name)
    assert row is not None
    return requeue_of(hf.context.store, row)


def test_a_dead_run_is_queued_and_its_attempts_start_again(hf: Holdfast) -> None:
    hf.submit("clerk", "job", start={"n": 1, "fails": True})
    hf.worker({"clerk": clerk}, attempts=1).run(until_idle=True)
    found = requeue(hf, "job")
    assert (found.handler, found.is_first) == ("clerk", False)
    found.queue()
    info = hf.run_info("job")
    assert info is not None
    assert (info.status, info.attempt) == ("queued", 0)
    with pytest.raises(Conflict):
        found.queue()


def test_a_fork_is_run_by_the_handler_of_its_origin(hf: Holdfast) -> None:
    hf.submit("clerk", "job", start={"n": 1}, version="v2")
    hf.worker({"clerk": clerk}, versions=["v2"]).run(until_idle=True)
    hf.thread("job").fork("trial", at="@1", state={"n": 2})
    hf.thread("trial").fork("second", at="@1")
    for name in ("trial", "second"):
        found = requeue(hf, name)
        assert (found.handler, found.is_first) == ("clerk", True)
        found.queue()
    hf.worker({"clerk": clerk}, versions=["v2"]).run(until_idle=True)
    assert [hf.result(name) for name in ("trial", "second")] == [2, 2]


def test_what_no_worker_can_take_is_refused(hf: Holdfast) -> None:
    hf.thread("plain").save({})
    with hf.run("loose", start={}) as run:
        run.halt("enough")
    hf.submit("clerk", "job", start={"n": 1})
    for name, error in (("plain", NotFound), ("loose", InvalidArgument), ("job", Conflict)):
        with pytest.raises(error):
            requeue(hf, name)
    hf.thread("plain").fork("of plain", at="@-1")
    with pytest.raises(NotFound):
        requeue(hf, "of plain")
