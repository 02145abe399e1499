"""A page to ask, without a server and with one, and a browser to look at it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

import holdfast
from holdfast import Holdfast
from holdfast.demo import play as demo
from holdfast.ui import app
from holdfast.ui.guard import Token, loopback_hosts
from tests.cli.warm import Words, started
from tests.examples.played import Left, played_demo
from tests.ui import scene
from tests.ui.browser import Browser, browsing
from tests.waiting import DEADLINE, until

PORT = 8123
ORIGIN = f"http://127.0.0.1:{PORT}"
TOKEN = "the-token"  # noqa: S105 - of a test


class Page:
    """Asks the page as a browser would that has its cookie, unless it is told otherwise."""

    def __init__(self, hf: Holdfast, *, redact: Callable[[str], str] | None = None, **options: Any) -> None:
        self.hf = hf
        given: dict[str, Any] = {
            "authorize": Token(TOKEN, PORT),
            "hosts": loopback_hosts(PORT),
            "title": "a store",
            "redact": redact,
            **options,
        }
        self._app = app(hf, **given)
        self.cookies = {f"holdfast-{PORT}": TOKEN}

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        cookies = options.pop("cookies", self.cookies)

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, cookies=cookies) as client:
                return await client.request(method, path, **options)

        return asyncio.run(asked())

    def raw(self, path: str, query: str) -> dict[str, Any]:
        """How the answer begins to a path that no client would send as it is."""
        headers = [(b"host", f"127.0.0.1:{PORT}".encode())]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": headers}
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        server = ("127.0.0.1", PORT)

        async def asked() -> None:
            await self._app({**scope, "scheme": "http", "server": server, "root_path": ""}, receive, send)

        asyncio.run(asked())
        started: dict[str, Any] = sent[0]
        return started

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.ask("GET", f"{path}?{urlencode(query)}" if query else path)

    def seal(self) -> str:
        found = self.get("/store").text.partition('name="seal" value="')[2].partition('"')[0]
        assert found
        return found

    def post(self, action: str, *, confirmed: bool = True, **form: Any) -> httpx.Response:
        """What is answered to a form, or, if it is confirmed, to the one that asks whether that is meant."""
        asked = self.send(action, {"seal": self.seal(), **form})
        return self.confirm(action, asked) if confirmed and asked.status_code == httpx.codes.OK else asked

    def send(self, action: str, form: dict[str, Any]) -> httpx.Response:
        return self.ask("POST", f"/act/{action}", data=form, headers={"Origin": ORIGIN})

    def confirm(self, action: str, asked: httpx.Response) -> httpx.Response:
        """What is answered to who was asked, and confirms."""
        return self.send(action, hidden(asked.text))


def hidden(markup: str) -> dict[str, str]:
    """What the form on a page says that nobody types."""
    found = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', markup)
    return {name: unescape(value) for name, value in found}


@pytest.fixture
def filled(hf: Holdfast) -> Holdfast:
    """A store of each kind, with something of everything."""
    scene.fill(hf)
    return hf


@pytest.fixture
def memory() -> Iterator[Holdfast]:
    """A store with something of everything."""
    with holdfast.open("memory:") as hf:
        scene.fill(hf)
        yield hf


@pytest.fixture
def page(memory: Holdfast) -> Page:
    return Page(memory)


@pytest.fixture
def writing(memory: Holdfast) -> Page:
    """A page that may change the store."""
    return Page(memory, allow_write=True)


class Server:
    """`holdfast ui` in a process of its own."""

    def __init__(self, store: Path, *options: str) -> None:
        self.store = store
        command = [sys.executable, "-m", "holdfast", "ui", "--store", str(store), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.at = self.url.partition("?")[0].rstrip("/")

    def address(self, path: str, **query: str) -> str:
        return f"{self.at}{path}{'?' if query else ''}{urlencode(query)}"

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE)
        if self.process.stdout is not None:
            self.process.stdout.close()


class WarmServer(Server):
    """The same, forked from a process that has imported all it needs."""

    def __init__(self, store: Path, *options: str) -> None:
        self.store = store
        out, err, task = (store.with_name(f"ui-{name}") for name in ("out", "err", "task"))
        words = Words(("ui", "--store", str(store), *options), str(store.parent), {**os.environ}, str(out), str(err))
        self._child = started(words, task, "holdfast.ui", "uvicorn", "uvicorn.protocols.http.h11_impl", "asyncio")
        until(lambda: out.exists() and out.read_text().endswith("\n"), "the server says its address")
        self.url = out.read_text().strip()
        self.at = self.url.partition("?")[0].rstrip("/")

    def end(self) -> None:
        os.kill(self._child.pid, signal.SIGTERM)
        self._child.wait_for_end()


@contextlib.contextmanager
def playing(folder: Path, kind: type[demo.Killer] = demo.Killer) -> Generator[tuple[demo.Papers, Page]]:
    """The demo, played to its end with a killer of this kind, and the page of its store."""
    papers = demo.Papers(folder / "killed", 8, 7)
    with contextlib.ExitStack() as processes:
        play = demo.Play(papers, processes, clerks=demo.CLERKS)
        killer = kind(play, 7, demo.MOST_KILLS)
        deadline = time.monotonic() + DEADLINE
        while not play.completed:
            assert time.monotonic() < deadline, "the work was not done in time"
            killer.look()
            time.sleep(demo.LOOK_EVERY)
        play.send_home()
        yield papers, Page(play.hf)


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[demo.Papers, Page]]:
    """A run of the demo in which clerks are killed, and the page of its store."""
    papers = Left(played_demo(tmp_path_factory) / "killed")
    with holdfast.open(papers.folder / "agent.db") as hf:
        yield papers, Page(hf)


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    """One browser for all tests: it takes seconds to start. That there is none is a failure."""
    with browsing() as opened:
        yield opened


@pytest.fixture
def browser(window: Browser) -> Browser:
    """The browser, as if nobody had used it."""
    window.driver.delete_all_cookies()
    window.go("about:blank")  # the page of the last test would go on asking its server, which is gone
    window.size(1200)
    window.complaints()
    return window


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something of everything, made once: a process has to die for it."""
    folder = tmp_path_factory.mktemp("made")
    with holdfast.open(folder / "agent.db", durability="off") as hf:
        scene.fill(hf)
        scene.interrupted(hf)
        scene.ordering(hf)
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A copy of that store."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "agent.db"


@pytest.fixture
def served(store: Path) -> Iterator[Server]:
    """A server that may write."""
    server = WarmServer(store, "--allow-write")
    try:
        yield server
    finally:
        server.end()
