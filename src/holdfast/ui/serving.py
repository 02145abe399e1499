"""Serve the web UI on the loopback address, protected by a token."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

import uvicorn

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.ui.application import app
from holdfast.ui.guard import Token, loopback_hosts

_LOOPBACK = "127.0.0.1"


def serve(
    hf: Holdfast,
    *,
    port: int = 0,
    title: str = "",
    allow_write: bool = False,
    redact: Callable[[str], str] | None = None,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is called with the address, which contains the token, once it is bound.

    Raises InvalidArgument if the port is in use.
    """
    token = token or secrets.token_urlsafe(24)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_LOOPBACK, port))
        except OSError as error:
            raise InvalidArgument(
                f"cannot listen on port {port} ({error.strerror}); choose another port, or 0 for any free one"
            ) from error
        listening.listen(128)
        port = listening.getsockname()[1]
        page = app(
            hf,
            authorize=Token(token, port),
            allow_write=allow_write,
            redact=redact,
            title=title,
            hosts=loopback_hosts(port),
        )
        config = uvicorn.Config(
            page, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
        )
        if ready is not None:
            ready(f"http://{_LOOPBACK}:{port}/?token={token}")
        uvicorn.Server(config).run(sockets=[listening])
