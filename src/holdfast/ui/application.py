"""The web UI as an ASGI application: routes and error pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
from holdfast.redaction import Redaction
from holdfast.ui.doing import act
from holdfast.ui.guard import Authorize, Guard
from holdfast.ui.html import line, tag
from holdfast.ui.keeping import Counting, Verifying, store_page
from holdfast.ui.redacting import Redacting
from holdfast.ui.steps import step_page
from holdfast.ui.threads import threads_page
from holdfast.ui.timeline import timeline_page
from holdfast.ui.view import Site, View
from holdfast.ui.waiting import waiting_page

_FILES: Final = {"page.css": "text/css", "page.js": "text/javascript", "mark.svg": "image/svg+xml"}
_STATUSES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (
    (NotFound, 404),
    (InvalidArgument, 400),
    (Conflict, 409),
    (LeaseHeld, 409),
)


def app(
    hf: Holdfast,
    *,
    authorize: Authorize,
    allow_write: bool = False,
    redact: Callable[[str], str] | None = None,
    title: str = "",
    hosts: frozenset[str] | None = None,
    secret: bytes | None = None,
) -> ASGIApp:
    """Return the web UI of a store as an ASGI application, to mount into your own service.

    `authorize` is a sync or async function that takes the request. It returns False or None to refuse, a response to
    send instead (a redirect to a login page, for example), or True or the user's name to allow. The name is recorded
    with each action. Without `allow_write` the web UI is read-only. `redact` is applied to every string but names
    before it is sent. `hosts` are the accepted values of the Host header; None accepts all. `secret` signs forms: pass
    the same one to all processes that serve the web UI, or to keep forms valid after a restart.
    """
    if not callable(authorize):
        raise InvalidArgument(
            "authorize must be a function that takes a request and returns whether it is allowed; there is no default"
        )
    site = Site(hf, title, allow_write, Redacting(Redaction(redact)))
    counting, work = Counting(hf), Verifying(hf)
    static = {name: files("holdfast.ui").joinpath("static", name).read_bytes() for name in _FILES}

    def static_file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static:
            raise HTTPException(404)
        return Response(static[name], media_type=_FILES[name], headers={"Cache-Control": "private, max-age=3600"})

    def page(make: Callable[[View], Response]) -> Callable[[Request], Response]:
        return lambda request: _answered(site, request, make)

    routes = [
        Route("/", page(threads_page)),
        Route("/thread", page(timeline_page)),
        Route("/step", page(step_page)),
        Route("/waiting", page(waiting_page)),
        Route("/store", page(lambda view: store_page(view, counting, work))),
        Route("/act/{action}", page(lambda view: _acted(view, work)), methods=["POST"]),
        Route("/static/{name}", static_file),
    ]
    handlers: dict[Any, Callable[[Request, Exception], Response | Awaitable[Response]]] = {
        HTTPException: lambda request, error: _told(View(site, request), getattr(error, "status_code", 500), "")
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), authorize, hosts, secret)


def _acted(view: View, work: Verifying) -> Response:
    action = view.request.path_params["action"]
    if action == "verify":
        work.begin()  # changes nothing, so it is allowed on a read-only page
        return Response(status_code=303, headers={"Location": view.url("/store")})
    return act(view, action)


def _answered(site: Site, request: Request, make: Callable[[View], Response]) -> Response:
    """Return the page, or an error page with the status that fits the error."""
    view = View(site, request)
    try:
        return make(view)
    except HoldfastError as error:
        status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
        # An error of the redaction itself is not redacted: that would fail again.
        is_ours = isinstance(error.__cause__, Unsupported)
        return _told(view, status, str(error) if is_ours else site.redacting.message(str(error)))


def _told(view: View, status: int, why: str) -> Response:
    titles = {400: "Invalid request", 404: "Not found", 405: "Method not allowed", 409: "Not possible now"}
    title = titles.get(status, "Error")
    said = line(why) if why else "There is no such page."
    return view.page(title, tag("h1", title), tag("p", said, class_="bad" if status >= 500 else None), status=status)
