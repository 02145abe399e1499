"""A proxy in front of a server of objects that delays, repeats, refuses, and loses answers after the write."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("delay", "repeat", "refuse", "lose", "cut")
_HOP = {"connection", "keep-alive", "transfer-encoding"}


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target: int, seed: int, often: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.often = often
        self.faults: Counter[str] = Counter()
        self.lock = threading.Lock()
        self._random = random.Random(seed)

    def fault(self) -> str:
        with self.lock:
            found = self._random.choice(FAULTS) if self._random.random() < self.often else ""
            self.faults[found] += 1
            return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _proxy(self) -> _Proxy:
        found = self.server
        assert isinstance(found, _Proxy)
        return found

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self._proxy.fault()
        if fault == "cut":  # before the server has the request
            self.close_connection = True
            return
        if fault == "refuse":
            self._answer(503, {"Content-Type": "application/xml"}, b"<Error><Code>SlowDown</Code></Error>")
            return
        if fault == "delay":
            time.sleep(0.3)
        if fault == "repeat":
            self._forward(body)
        status, headers, data = self._forward(body)
        if fault == "lose":  # after the server has carried it out
            self.close_connection = True
            return
        self._answer(status, headers, data)

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection("127.0.0.1", self._proxy.target, timeout=20)
        try:
            connection.request(self.command, self.path, body=body, headers=dict(self.headers.items()))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HOP and not (name.lower() == "content-length" and self.command != "HEAD"):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle(self) -> None:
        with suppress(OSError, HTTPException):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815


class Faulty:
    """A proxy that runs."""

    def __init__(self, proxy: _Proxy) -> None:
        self.port = int(proxy.server_address[1])
        self.faults = proxy.faults


@contextmanager
def between(target: int, *, seed: int, often: float) -> Generator[Faulty]:
    """A proxy in front of a port of this machine, for a block. `often` is the share of requests with a fault."""
    proxy = _Proxy(target, seed, often)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Faulty(proxy)
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
