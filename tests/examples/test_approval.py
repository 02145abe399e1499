"""The approval example: a person answers, whatever became of the server that asked."""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.examples.serving import EXAMPLES
from tests.waiting import DEADLINE

ASKED = {"id": "r-1", "customer": "ada", "order": "7", "amount": 40}
YES = {"request": "r-1", "approve": True, "by": "grace"}
NO = {**YES, "approve": False}
DONE = {"thread": "ada", "status": "completed", "result": 40}
WAITS = {"thread": "ada", "status": "waiting", "result": None}


def example() -> ModuleType:
    """The example as another process would have it: loaded anew."""
    spec = importlib.util.spec_from_file_location("approval_fastapi", EXAMPLES / "approval_fastapi.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where FastAPI looks for what annotations mean
    spec.loader.exec_module(module)
    return module


@contextmanager
def server() -> Iterator[TestClient]:
    """A server from its start to its orderly end."""
    with TestClient(example().app) as client:
        yield client


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "refunds.db"))
    return tmp_path


def refunds() -> list[list[str]]:
    path = Path("refunds.csv")
    return [line.split(",")[1:] for line in path.read_text().splitlines()] if path.exists() else []


def waiting(client: TestClient) -> list[tuple[Any, ...]]:
    names = ("thread", "to", "order", "amount")
    return [tuple(found[name] for name in names) for found in client.get("/waiting").json()]


def post(client: TestClient, path: str, content: dict[str, Any]) -> tuple[int, Any]:
    response = client.post(path, json=content)
    return response.status_code, response.json()


def test_nothing_is_paid_before_somebody_approves() -> None:
    with server() as client:
        assert post(client, "/requests", ASKED) == (200, WAITS)
        assert waiting(client) == [("ada", "approve r-1", "7", 40)]
        assert refunds() == []
        assert post(client, "/answers/ada", YES) == (200, DONE)
        assert refunds() == [["7", "40"]]
        assert waiting(client) == []


def test_what_is_refused_is_not_paid() -> None:
    with server() as client:
        post(client, "/requests", ASKED)
        assert post(client, "/answers/ada", NO) == (200, {**DONE, "result": "refused"})
    assert refunds() == []


def test_the_server_may_be_restarted_between_question_and_answer() -> None:
    with server() as client:
        assert post(client, "/requests", ASKED) == (200, WAITS)
    with server() as client:
        assert waiting(client) == [("ada", "approve r-1", "7", 40)]
        assert post(client, "/answers/ada", YES) == (200, DONE)
    with server() as client:
        assert post(client, "/requests", ASKED) == (200, DONE)
    assert refunds() == [["7", "40"]]


def test_two_servers_over_one_store_are_one() -> None:
    with server() as first, server() as second:
        assert post(first, "/requests", ASKED) == (200, WAITS)
        assert post(second, "/answers/ada", YES) == (200, DONE)
        assert post(first, "/requests", ASKED) == (200, DONE)
    assert refunds() == [["7", "40"]]


def test_requests_may_be_repeated_at_any_time() -> None:
    with server() as client:
        for _ in range(3):
            assert post(client, "/requests", ASKED) == (200, WAITS)
        assert len(waiting(client)) == 1
        for _ in range(3):
            assert post(client, "/answers/ada", YES) == (200, DONE)
            assert post(client, "/requests", ASKED) == (200, DONE)
    assert refunds() == [["7", "40"]]


def test_another_request_of_a_customer_is_another_turn() -> None:
    with server() as client:
        post(client, "/requests", ASKED)
        status, content = post(client, "/requests", {**ASKED, "id": "r-2", "order": "8", "amount": 250})
        assert (status, "r-1" in content["detail"]) == (409, True)
        post(client, "/answers/ada", YES)
        assert post(client, "/requests", {**ASKED, "id": "r-2", "order": "8", "amount": 250}) == (200, WAITS)
        assert waiting(client) == [("ada", "approve r-2", "8", 250)]
        assert post(client, "/answers/ada", YES) == (200, WAITS)  # once more, late: it is about the first request
        assert refunds() == [["7", "40"]]
        assert post(client, "/answers/ada", {**NO, "request": "r-2"})[0] == 200
        assert post(client, "/requests", ASKED) == (200, DONE)  # what came of the first is still known
    assert refunds() == [["7", "40"]]


def test_the_first_answer_holds() -> None:
    with server() as client:
        post(client, "/requests", ASKED)
        post(client, "/answers/ada", YES)
        status, content = post(client, "/answers/ada", NO)
        assert (status, "already has another answer" in content["detail"]) == (409, True)
    assert refunds() == [["7", "40"]]


def test_nobody_to_answer_is_not_found() -> None:
    with server() as client:
        assert post(client, "/answers/bob", YES)[0] == 404


# -- killed -----------------------------------------------------------------------------------------------------------

_FORKS = multiprocessing.get_context("forkserver")


def serve_until_killed(
    folder: Path, path: str, content: dict[str, Any], dies_in_refund: bool, pipe: Connection
) -> None:
    """A server that answers one request, says so, and then is there for nothing but to be killed."""
    os.chdir(folder)
    os.environ["HOLDFAST_STORE"] = str(folder / "refunds.db")
    module = example()
    if dies_in_refund:
        sys.addaudithook(_die_when_paid)

    async def serve() -> None:
        transport = httpx.ASGITransport(module.app)
        async with (
            module.app.router.lifespan_context(module.app),
            httpx.AsyncClient(transport=transport, base_url="http://refunds") as client,
        ):
            pipe.send((await client.post(path, json=content)).json())
            await asyncio.Event().wait()

    asyncio.run(serve())


def _die_when_paid(event: str, args: tuple[Any, ...]) -> None:
    """The bank has it; the next lock that is taken would be the store's, to record it."""
    if event == "fcntl.flock" and refunds():
        os.kill(os.getpid(), signal.SIGKILL)


def killed(folder: Path, path: str, content: dict[str, Any], *, dies_in_refund: bool = False) -> Any:
    """What a server answers before it is killed; None if it dies before that."""
    ours, theirs = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=serve_until_killed, args=(folder, path, content, dies_in_refund, theirs))
    process.start()
    theirs.close()
    try:
        assert ours.poll(DEADLINE), "the server did nothing"
        try:
            return ours.recv()
        except EOFError:
            return None
    finally:
        process.kill()
        process.join(DEADLINE)
        assert process.exitcode == -signal.SIGKILL
        ours.close()


def test_a_server_that_is_killed_after_it_asked_loses_nothing(folder: Path) -> None:
    assert killed(folder, "/requests", ASKED) == WAITS
    with server() as client:
        assert waiting(client) == [("ada", "approve r-1", "7", 40)]
        assert post(client, "/answers/ada", YES) == (200, DONE)
    assert refunds() == [["7", "40"]]


def test_a_server_that_is_killed_while_it_pays_pays_once(folder: Path) -> None:
    assert killed(folder, "/requests", ASKED) == WAITS
    assert killed(folder, "/answers/ada", YES, dies_in_refund=True) is None
    assert refunds() == [["7", "40"]]
    with server() as client:
        assert post(client, "/answers/ada", YES) == (200, DONE)
        assert post(client, "/requests", ASKED) == (200, DONE)
    assert refunds() == [["7", "40"]]
