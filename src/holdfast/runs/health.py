"""The health of a worker as an HTTP endpoint, off by default.

`GET /live` reports whether the worker works; if not, a restart helps. `GET /ready` reports whether runs make progress:
a store that is down, or cannot be written, makes a worker unready. Both answer 200 or 503, with numbers only.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.runs.worker import Activity

_READ_SECONDS: Final = 5.0  # for a client that connects and sends nothing


class Health:
    """The endpoint. It listens when it is created, answers after `start`, and closes with `stop`."""

    def __init__(
        self,
        address: tuple[str, int],
        activity: Activity,
        ask_store: Callable[[], Any],
        is_draining: Callable[[], bool],
    ) -> None:
        """InvalidArgument if the address cannot be used. `ask_store` raises if the store does not answer."""
        self._activity = activity
        self._ask_store = ask_store
        self._asking = threading.Lock()
        self._is_draining = is_draining
        self._server: ThreadingHTTPServer | None = _listening(_checked(address), self)
        host, port = self._server.server_address[:2]
        # The port that the system chose, if the given one was 0.
        self.address: Final = (str(host), port)

    def start(self) -> None:
        """Answer requests in the background. After `stop`, it listens again at the same address."""
        server = self._server = self._server or _listening(self.address, self)
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="holdfast-health", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop answering. Call it after `start`."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, path: str) -> tuple[int, dict[str, Any]] | None:
        """The status and the content for a path; None if there is no such path."""
        if path == "/live":
            is_well = self._activity.is_beating()
            return 200 if is_well else 503, {"live": is_well, **self._activity.numbers()}
        if path == "/ready":
            draining = self._is_draining()
            is_well = not draining and self._activity.is_storing() and self._store_answers()
            return 200 if is_well else 503, {"ready": is_well, "draining": draining, **self._activity.numbers()}
        return None

    def _store_answers(self) -> bool:
        # One question at a time, or a store that hangs would block one more thread with every request.
        if not self._asking.acquire(blocking=False):
            return False
        try:
            self._ask_store()
        except (HoldfastError, OSError):
            return False
        finally:
            self._asking.release()
        return True


def _checked(address: object) -> tuple[str, int]:
    match address:
        case (str(host), int(port)) if host and type(port) is int and 0 <= port < 65_536:
            return host, port
        case _:
            raise InvalidArgument('health must be a host and a port, like ("127.0.0.1", 8080)')


def _listening(address: tuple[str, int], health: Health) -> ThreadingHTTPServer:
    class Handler(_Handler):
        answer = staticmethod(health.answer)

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

        def server_bind(self) -> None:
            # HTTPServer would also look up the host's name, which can take long and is not needed.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_address = self.socket.getsockname()

    try:
        return Server(address, Handler)
    except OSError as cause:
        raise InvalidArgument(
            f"health cannot listen on {address[0]} port {address[1]} ({cause.strerror or cause}); pass another address"
        ) from cause


class _Handler(BaseHTTPRequestHandler):
    answer: Callable[[str], tuple[int, dict[str, Any]] | None]
    timeout = _READ_SECONDS

    def do_GET(self) -> None:
        found = self.answer(self.path.partition("?")[0])
        status, content = found or (404, {"paths": ["/live", "/ready"]})
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has in http.server
        """Log nothing: a library does not write to stderr, and probes come every few seconds."""

    def version_string(self) -> str:
        return "holdfast"
