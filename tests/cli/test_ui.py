"""`holdfast ui`: where it is served, for whom, and what it says when it cannot be."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.cli.main import main
from tests.ui.conftest import Server
from tests.waiting import DEADLINE


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as hf:
        hf.thread("seen").save({"key": "sk-secret"})
    return path


def asked(url: str, **headers: str) -> tuple[int, str]:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=DEADLINE)
    try:
        connection.request("GET", f"{at.path}?{at.query}", headers=headers)
        answer = connection.getresponse()
        if answer.status == http.client.SEE_OTHER and "Set-Cookie" in answer.headers:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
            return asked(f"http://{at.netloc}{answer.headers['Location']}", Cookie=cookie)
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_it_serves_the_store_on_this_machine_to_whoever_has_the_address(store: Path) -> None:
    server = Server(store)
    try:
        assert server.url.startswith("http://127.0.0.1:")
        status, text = asked(server.url.replace("/?", "/threads?"))
        assert status == 200
        assert "seen" in text
        assert "read-only" in text
        assert asked(server.at + "/")[0] == 401
        assert asked(server.url, Host="evil.example")[0] == 421
    finally:
        server.end()
    assert server.process.returncode in (0, -signal.SIGTERM)


def test_its_address_as_json(store: Path) -> None:
    server = Server(store, "--json", "--allow-write")
    try:
        said = json.loads(server.url)
        assert said["writes"] is True
        assert "writes allowed" in asked(said["url"])[1]
    finally:
        server.end()


def test_two_servers_have_two_tokens(store: Path) -> None:
    first, second = Server(store), Server(store)
    try:
        assert first.url.partition("token=")[2] != second.url.partition("token=")[2]
    finally:
        first.end()
        second.end()


def test_what_is_redacted_by_a_function_of_the_application(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text("def hide(text):\n    return text.replace('sk-secret', '[hidden]')\n")
    monkeypatch.chdir(tmp_path)
    server = Server(store, "--redact", "shop:hide")
    try:
        at = server.url.replace("/?", "/state?name=seen&")
        with holdfast.open(store) as hf:
            at = at.replace("@-1", hf.thread("seen").load("@-1").id)
        text = asked(at)[1]
        assert "[hidden]" in text
        assert "sk-secret" not in text
    finally:
        server.end()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--store", "nothing.db"], 3, "there is no store"),
        (["--port", "70000"], 2, "--port"),
        (["--redact", "nothing:here"], 2, "no module"),
        (["--redact", "json:__name__"], 2, "must be a function"),
        (["--allow-writes"], 2, "did you mean"),
    ],
)
def test_what_cannot_be_served_is_said(
    words: list[str],
    code: int,
    said: str,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(store))
    assert main(["ui", *words]) == code
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(store))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["ui", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on port" in capsys.readouterr().err


def test_without_the_extra_it_says_how_to_get_it(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] in ("uvicorn", "starlette")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [each for each in sys.modules if each.startswith("holdfast.ui")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setenv("HOLDFAST_STORE", str(store))
    assert main(["ui"]) == 1
    assert "holdfast[ui]" in capsys.readouterr().err
