"""Health of a worker: alive while its loops look at the store, ready while work gets done."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged, Holdfast, InvalidArgument, Run, StoreError, Worker
from holdfast.errors import StoreFull
from holdfast.runs import worker as worker_module
from tests.runs.conftest import World
from tests.waiting import DEADLINE, until

ANY_PORT = ("127.0.0.1", 0)


def ask(address: tuple[str, int] | None, path: str, method: str = "GET") -> tuple[int, Any]:
    assert address is not None
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null") if method == "GET" else None
    finally:
        connection.close()


@contextmanager
def working(hf: Holdfast, handler: Callable[[Run], Any] = lambda run: None, **options: Any) -> Iterator[Worker]:
    """A worker at work."""
    worker = hf.worker({"h": handler}, health=ANY_PORT, **options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(DEADLINE)
        assert not thread.is_alive()


def test_a_worker_tells_how_it_is(world: World) -> None:
    with working(world.open()) as worker:
        assert worker.health is not None
        assert worker.health[1] > 0
        status, live = ask(worker.health, "/live")
        assert (status, live["live"], live["running"]) == (200, True, 0)
        status, ready = ask(worker.health, "/ready?verbose=1")
        assert (status, ready["ready"], ready["draining"]) == (200, True, False)
        assert 0 <= ready["last_look_seconds"] <= ready["uptime_seconds"] < DEADLINE
        assert set(ready) == {"ready", "draining", "running", "last_look_seconds", "uptime_seconds"}


def test_it_is_off_by_default(world: World) -> None:
    assert world.open().worker({"h": lambda run: None}).health is None


def test_a_handler_may_take_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "STALE_SECONDS", 0.0)
    started, end = threading.Event(), threading.Event()

    def handler(run: Run) -> None:
        started.set()
        assert end.wait(DEADLINE)

    hf = world.open()
    hf.submit("h", "t", start={})
    with working(hf, handler) as worker:
        assert started.wait(DEADLINE)
        status, live = ask(worker.health, "/live")
        assert (status, live["running"]) == (200, 1)
        end.set()
        monkeypatch.setattr(worker_module, "STALE_SECONDS", 60.0)
        until(lambda: ask(worker.health, "/live")[1]["running"] == 0, "nothing runs")


def test_a_loop_that_hangs_is_not_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hf = world.open()
    end = threading.Event()
    looks = hf.context.store.runs

    def hang(**options: Any) -> Any:
        assert end.wait(DEADLINE)
        return looks(**options)

    monkeypatch.setattr(hf.context.store, "runs", hang)
    with working(hf, concurrency=2) as worker:
        assert ask(worker.health, "/live")[0] == 200  # so far it only takes its time
        monkeypatch.setattr(worker_module, "STALE_SECONDS", 0.05)
        until(lambda: ask(worker.health, "/live")[0] == 503, "the worker is known to hang")
        monkeypatch.setattr(worker_module, "STALE_SECONDS", 60.0)
        end.set()
        assert ask(worker.health, "/live")[0] == 200


def test_one_loop_that_hangs_is_enough(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hf = world.open()
    end, hanging = threading.Event(), threading.Lock()
    looks = hf.context.store.runs

    def hang_once(**options: Any) -> Any:
        if hanging.acquire(blocking=False):
            assert end.wait(DEADLINE)
        return looks(**options)

    monkeypatch.setattr(hf.context.store, "runs", hang_once)
    monkeypatch.setattr(worker_module, "STALE_SECONDS", 1.5)  # above what an idle loop waits between two looks
    with working(hf, concurrency=2) as worker:

        def is_half_dead() -> bool:
            status, live = ask(worker.health, "/live")
            return status == 503 and live["last_look_seconds"] < 1.5

        until(is_half_dead, "one loop is known to hang while the other looks")
        end.set()


def test_a_store_that_fails_makes_it_unready_and_restarting_would_not_help(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = world.open()

    def fail(**_: Any) -> Any:
        raise StoreError("the disk is gone")

    with working(hf) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(hf.context.store, "runs", fail)
            assert ask(worker.health, "/ready")[0] == 503
            assert ask(worker.health, "/live")[0] == 200
        until(lambda: is_ready(worker), "it has looked again")


def is_ready(worker: Worker) -> bool:
    return ask(worker.health, "/ready")[0] == 200


class Filling:
    """A store between which and its worker some verbs fail while `verbs` names them."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.verbs: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        def asked(*args: Any, **options: Any) -> Any:
            if name in self.verbs:
                raise StoreFull("no space left")
            return found(*args, **options)

        return asked if callable(found) else found


def filling(world: World) -> tuple[Holdfast, Filling]:
    made: list[Filling] = []

    def between(store: Any) -> Any:
        made.append(Filling(store))
        return made[0]

    return world.open(store=between), made[0]


@pytest.mark.parametrize("verb", ["claim", "commit", "journal"])
def test_a_store_that_can_be_read_and_not_written_makes_it_unready(world: World, verb: str) -> None:
    hf, store = filling(world)
    others = world.open()

    def handler(run: Run) -> None:
        run.tool(lambda: None, key="k")
        run.save()

    with working(hf, handler) as worker:
        assert is_ready(worker)
        store.verbs = {verb}
        others.submit("h", "t", start={})
        until(lambda: not is_ready(worker), "it is known that nothing can be written")
        assert ask(worker.health, "/live")[0] == 200
        store.verbs = set()
        others.submit("h", "another", start={})
        until(lambda: is_ready(worker), "something was written")
        until(lambda: "another" in [info.name for info in others.threads(status="completed")], "work gets done")


def test_a_full_disk_that_has_room_for_renewals_only_makes_it_unready(tmp_path: Path) -> None:
    """The tool has acted, and its result does not fit. The endpoint says so until there is room."""
    hf = holdfast.open(tmp_path / "a.db")
    store: Any = hf.context.store
    acted: list[int] = []

    def make_room(pages: int) -> None:
        store.writer.connection.execute(f"PRAGMA max_page_count = {pages}")

    def act() -> str:
        acted.append(1)
        (used,) = store.writer.connection.execute("PRAGMA page_count").fetchone()
        make_room(used + 16)
        return random.Random(7).randbytes(1 << 19).hex()

    with working(hf, lambda run: run.tool(act, key="k"), lease=60.0) as worker:
        assert is_ready(worker)
        hf.submit("h", "t", start={})
        until(lambda: acted, "the tool acts")
        until(lambda: not is_ready(worker), "its result does not fit")
        assert ask(worker.health, "/ready")[1]["running"] == 1
        assert ask(worker.health, "/live")[0] == 200
        make_room(1 << 30)
        until(lambda: is_ready(worker), "its result is written")
        until(lambda: [info.name for info in hf.threads(status="completed")] == ["t"], "the run completes")
    [effect] = hf.effects("t")
    assert (effect.status, acted) == ("done", [1])
    hf.close()


def test_a_lease_that_cannot_be_renewed_makes_it_unready_while_a_handler_runs(
    world: World,
) -> None:
    hf, store = filling(world)
    started, end = threading.Event(), threading.Event()

    def handler(run: Run) -> None:
        started.set()
        assert end.wait(DEADLINE)

    hf.submit("h", "t", start={})
    with working(hf, handler, lease=0.3) as worker:
        assert started.wait(DEADLINE)
        assert is_ready(worker)
        store.verbs = {"renew"}
        until(lambda: not is_ready(worker), "it is known that the lease cannot be renewed")
        store.verbs = set()
        until(lambda: is_ready(worker), "the lease is renewed again")
        end.set()


def test_a_write_that_failed_long_ago_is_forgotten_where_nothing_is_to_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf, store = filling(world)
    store.verbs = {"claim"}
    hf.submit("h", "t", start={})
    with working(hf) as worker:
        until(lambda: not is_ready(worker), "it is known that nothing can be written")
        world.open().cancel("t", "nobody wants it any more")
        monkeypatch.setattr(worker_module, "STALE_SECONDS", 0.0)
        until(lambda: is_ready(worker), "the failure is forgotten")


def test_one_damaged_run_does_not_make_it_unready(world: World) -> None:
    hf = world.open()
    failed = threading.Event()

    def handler(run: Run) -> None:
        failed.set()
        raise Damaged("one checkpoint of one thread")

    hf.submit("h", "t", start={})
    with working(hf, handler, attempts=1) as worker:
        assert failed.wait(DEADLINE)
        until(lambda: ask(worker.health, "/live")[1]["running"] == 0, "nothing runs")
        assert is_ready(worker)


def test_a_store_that_hangs_is_asked_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hf = world.open()
    asked: list[str] = []
    started, end = threading.Event(), threading.Event()
    looks = hf.context.store.runs

    def hang(*, limit: int, **options: Any) -> Any:
        if options["statuses"] == ("queued",):
            asked.append("health")
            started.set()
            assert end.wait(DEADLINE)
        return looks(limit=limit, **options)

    monkeypatch.setattr(hf.context.store, "runs", hang)
    with working(hf) as worker:
        first = threading.Thread(target=ask, args=(worker.health, "/ready"))
        first.start()
        assert started.wait(DEADLINE)
        assert ask(worker.health, "/ready")[0] == 503
        assert asked == ["health"]
        end.set()
        first.join(DEADLINE)
        assert ask(worker.health, "/ready")[0] == 200


def test_a_worker_that_drains_is_alive_and_not_ready(world: World) -> None:
    started, end = threading.Event(), threading.Event()

    def handler(run: Run) -> None:
        started.set()
        assert end.wait(DEADLINE)

    hf = world.open()
    hf.submit("h", "t", start={})
    with working(hf, handler) as worker:
        address = worker.health
        assert started.wait(DEADLINE)
        worker.stop()
        status, ready = ask(address, "/ready")
        assert (status, ready["ready"], ready["draining"], ready["running"]) == (503, False, True, 1)
        assert ask(address, "/live")[0] == 200
        end.set()
    with pytest.raises(ConnectionRefusedError):
        ask(address, "/live")


def test_a_worker_may_run_again_where_it_was(world: World) -> None:
    hf = world.open()
    asked: list[int] = []

    def handler(run: Run) -> None:
        asked.append(ask(worker.health, "/live")[0])

    worker = hf.worker({"h": handler}, health=ANY_PORT)
    address = worker.health
    for thread in ("a", "b"):
        hf.submit("h", thread, start={})
        worker.run(until_idle=True)
    assert asked == [200, 200]
    assert worker.health == address


def test_other_paths_and_methods_are_refused(world: World) -> None:
    with working(world.open()) as worker:
        assert ask(worker.health, "/") == (404, {"paths": ["/live", "/ready"]})
        assert ask(worker.health, "/live", "POST")[0] == 501


def test_a_client_that_says_nothing_is_in_nobodys_way(world: World) -> None:
    with working(world.open()) as worker, socket.create_connection(worker.health or ANY_PORT):
        assert ask(worker.health, "/live")[0] == 200


def test_ipv6(world: World) -> None:
    worker: Worker = world.open().worker({"h": lambda run: ask(worker.health, "/live")[0]}, health=("::1", 0))
    hf = world.open()
    hf.submit("h", "t", start={})
    worker.run(until_idle=True)
    with world.running("t", hf, ends="completed") as run:
        assert run.result == 200


@pytest.mark.parametrize(
    "wrong",
    [
        "127.0.0.1:8080",
        8080,
        (),
        ("127.0.0.1",),
        ("", 80),
        ("127.0.0.1", "80"),
        ("127.0.0.1", True),
        ("127.0.0.1", -1),
        ("127.0.0.1", 65_536),
        ("203.0.113.1", 0),
    ],
)
def test_where_nothing_can_listen(hf: Holdfast, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="health"):
        hf.worker({"h": lambda run: None}, health=wrong)


def test_an_address_that_is_taken_is_told_before_anything_is_run(hf: Holdfast) -> None:
    with working(hf) as worker, pytest.raises(InvalidArgument, match="in use"):
        hf.worker({"h": lambda run: None}, health=worker.health)


def test_no_server_is_imported_by_those_who_do_not_use_it() -> None:
    code = "import sys, holdfast; assert not {'http.server', 'socketserver'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE)
