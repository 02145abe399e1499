"""The web UI as an ASGI application: routes and error pages; and a server for it on the loopback address."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from holdfast.errors import Conflict, HoldfastError, InvalidArgument, LeaseHeld, NotFound, Unsupported
from holdfast.handle import Holdfast
from holdfast.inspect import existing, stats, tally
from holdfast.redaction import Redaction
from holdfast.ui.actions import act
from holdfast.ui.figures import Figures, Remembered, Verification, inbox_count
from holdfast.ui.guard import Authorize, Guard, Token, loopback_hosts
from holdfast.ui.lists import inbox_page, search_page, store_page, threads_page, workers_page
from holdfast.ui.redactor import Redactor
from holdfast.ui.request import Site, View, opened
from holdfast.ui.thread_page import export_file, state_file, thread_page

_FILES: Final = {"page.css": "text/css", "page.js": "text/javascript", "mark.svg": "image/svg+xml"}
_STATUSES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (
    (NotFound, 404),
    (InvalidArgument, 400),
    (Conflict, 409),
    (LeaseHeld, 409),
)
_LOOPBACK: Final = "127.0.0.1"
_NO_PAGE: Final = "There is no such page."
_CLAUSE: Final = re.compile(r"(; |\. )")
_PYTHON: Final = re.compile(r"\b(?:hf\.\w+|\w+\([^()]*\)|\w+=\w+)")
_NAME: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_TITLES: Final = {400: "Invalid request", 404: "Not found", 405: "Method not allowed", 409: "Not possible now"}


def app(
    hf: Holdfast,
    *,
    authorize: Authorize,
    allow_write: bool = False,
    redact: Callable[[str], str] | None = None,
    title: str = "",
    hosts: frozenset[str] | None = None,
    secret: bytes | None = None,
    graph: Any = None,
) -> ASGIApp:
    """Return the web UI of a store as an ASGI application, to mount into your own service.

    `authorize` is a sync or async function that takes the request. It returns False or None to refuse, a response to
    send instead (a redirect to a login page, for example), or True or the user's name to allow. The name is recorded
    with each action. Without `allow_write` the web UI is read-only. `redact` is applied to every string but names
    before it is sent. `hosts` are the accepted values of the Host header; None accepts all. `secret` signs forms: pass
    the same one to all processes that serve the web UI, or to keep forms valid after a restart. `graph` is a LangGraph
    graph on this store; an answer to one of its questions resumes it.
    """
    if not callable(authorize):
        raise InvalidArgument(
            "authorize must be a function that takes a request and returns whether it is allowed; there is no default"
        )
    site = Site(hf, title, allow_write, Redactor(Redaction(redact)), inbox_count(hf), Remembered(), graph)
    tallies, figures, check = Figures(lambda: tally(hf)), Figures(lambda: stats(hf)), Verification(hf)
    static = {name: files("holdfast.ui").joinpath("static", name).read_bytes() for name in _FILES}

    def static_file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static:
            raise HTTPException(404)
        return Response(static[name], media_type=_FILES[name], headers={"Cache-Control": "private, max-age=3600"})

    def page(make: Callable[[View], Response]) -> Callable[[Request], Response]:
        return lambda request: _answered(site, request, make)

    def acted(view: View) -> Response:
        action = view.request.path_params["action"]
        if action == "verify":
            check.start()  # changes nothing, so it is allowed on a read-only page
            return view.redirect(view.url("/store"))
        return act(view, action)

    routes = [
        Route("/", page(inbox_page)),
        Route("/threads", page(lambda view: threads_page(view, tallies))),
        Route("/thread", page(thread_page)),
        Route("/state", page(state_file)),
        Route("/export", page(export_file)),
        Route("/search", page(search_page)),
        Route("/workers", page(workers_page)),
        Route("/store", page(lambda view: store_page(view, figures, tallies, check))),
        Route("/act/{action}", page(acted), methods=["POST"]),
        Route("/static/{name}", static_file),
    ]
    handlers: dict[Any, Callable[[Request, Exception], Response | Awaitable[Response]]] = {
        HTTPException: lambda request, error: _error(View(site, request), getattr(error, "status_code", 500), "")
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), authorize, hosts, secret)


def serve(
    hf: Holdfast,
    *,
    port: int = 0,
    title: str = "",
    allow_write: bool = False,
    redact: Callable[[str], str] | None = None,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
    graph: Any = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is called with the address, which contains the token, once it is bound.

    Raises InvalidArgument if the port is in use.
    """
    import uvicorn  # noqa: PLC0415 - an application that is mounted needs no server

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
            graph=graph,
        )
        config = uvicorn.Config(
            page, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
        )
        if ready is not None:
            ready(f"http://{_LOOPBACK}:{port}/?token={token}")
        uvicorn.Server(config).run(sockets=[listening])


def _answered(site: Site, request: Request, make: Callable[[View], Response]) -> Response:
    """Return the page, or an error page with the status that fits the error."""
    view = View(site, request)
    try:
        return make(view)
    except HoldfastError as error:
        status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
        # An error of the redaction itself is not redacted: that would fail again.
        is_ours = isinstance(error.__cause__, Unsupported)
        return _error(view, status, str(error) if is_ours else site.redactor.message(str(error)))


def _error(view: View, status: int, why: str) -> Response:
    title = _TITLES.get(status, "Error")
    thread = opened(view.typed).get("thread") or view.asked("name")
    with suppress(HoldfastError):
        existing(view.hf, thread)
        return view.page("error.html", title, status=status, why=_without_python(why), thread=thread)
    return view.page("error.html", title, status=status, why=_without_python(why) or _NO_PAGE, thread="")


def _without_python(message: str) -> str:
    """Return a message without the clauses at its end that say what to call in Python."""
    parts = _CLAUSE.split(message)  # clauses, each but the last followed by the sign that ends it
    while len(parts) > 1 and _PYTHON.search(_NAME.sub("", parts[-1])):
        sign = parts[-2].strip()
        parts = parts[:-2]
        parts[-1] += "." if sign == "." else ""
    return "".join(parts)
