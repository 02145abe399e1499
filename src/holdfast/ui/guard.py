"""Access control: tokens, authorization, host and origin checks, signed forms.

A refused request reaches no route, not even static files or the "not found" page.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import InvalidArgument
from holdfast.ui.request import FIELDS_MOST, SEAL, packed, query_of, unpacked

Who: TypeAlias = "str | bool | Response | None"
Authorize: TypeAlias = "Callable[[HTTPConnection], Who | Awaitable[Who]]"
"""Decides about a request: False or None refuses it, True or a user's name allows it, a response is sent instead.
The name is recorded with each action."""

_TOKEN: Final = "token"  # noqa: S105 - the name of the query parameter
_BODY_MOST: Final = 64 << 20
_SECRET_LEAST: Final = 16
_READING: Final = ("GET", "HEAD")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Token:
    """Authorizes requests that carry the token of this server: in the URL once, later in a cookie."""

    def __init__(self, token: str, port: int) -> None:
        self._digest = _digest(token)
        self._token = token
        # Cookies are shared between ports: two servers on one machine must not overwrite each other's.
        self._cookie = f"holdfast-{port}"

    def __call__(self, request: HTTPConnection) -> bool:
        # Starlette's cookie parser, because Python's stops at the first invalid cookie, and cookies of other programs
        # on this machine are sent here too.
        return self._is_it(request.cookies.get(self._cookie))

    def welcome(self, request: Request) -> Response | None:
        """Return a redirect that sets the cookie and removes the token from the URL; None without a valid token."""
        query = unpacked(query_of(request))
        if request.method not in _READING or not self._is_it(query.pop(_TOKEN, None)):
            return None
        rest = packed(query)
        # Built from its parts, so that a path of "//elsewhere" cannot redirect to another host.
        there = "/" + quote(request.url.path.lstrip("/"))
        response = RedirectResponse(f"{there}?{rest}" if rest else there, 303)
        # Lax, because "strict" would drop the cookie when a shared link is opened from another site. Other pages cannot
        # read the response to a GET, and forms are signed and checked by origin.
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")
        return response

    def _is_it(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(_digest(given), self._digest)


class Guard:
    """Passes a request to the application, or refuses it."""

    def __init__(
        self, app: ASGIApp, authorize: Authorize, hosts: frozenset[str] | None, secret: bytes | None = None
    ) -> None:
        """`hosts` are the accepted values of the Host header; None accepts all, if the service checks it itself.

        `secret` signs forms. Processes that serve the same page need the same one; None makes a random one.
        """
        if secret is not None and (type(secret) is not bytes or len(secret) < _SECRET_LEAST):
            raise InvalidArgument(f"secret must be at least {_SECRET_LEAST} random bytes")
        self._app = app
        self._authorize = authorize
        self._hosts = hosts
        self._secret = secret or os.urandom(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # websockets are not served; the server closes the connection
        request = Request(scope, receive)
        unchanged, send = send, _with_headers(send)
        refused = self._refused(request)
        if refused is not None:
            await refused(scope, receive, send)
            return
        welcome = self._authorize.welcome(request) if isinstance(self._authorize, Token) else None
        if welcome is not None:  # before the cookie is checked, so that the token never stays in a URL that is shared
            await welcome(scope, receive, send)
            return
        who = await self._who(request)
        if isinstance(who, Response):
            await who(scope, receive, unchanged)
            return
        if not who:
            await self._unknown()(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["who"] = who if isinstance(who, str) else "the web UI"
        state["seal"] = self._seal(who)
        if request.method not in _READING:
            form = await self._form(request, who)
            if isinstance(form, Response):
                await form(scope, receive, send)
                return
            state["form"] = form
        await self._app(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        """Return the refusal of a request that was meant for another host or sent by another page, or None."""
        host = request.headers.get("host", "")
        if self._hosts is not None and host.lower() not in self._hosts:
            return _plain(421, "The Host header does not name this server.")
        origin = request.headers.get("origin")
        if origin is not None and not self._is_own(origin.lower(), host.lower()):
            return _plain(403, "Requests from other pages are refused.")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if request.method not in _READING and site != "same-origin":
            return _plain(403, "Forms from other pages are refused.")
        if request.method not in (*_READING, "POST"):
            return _plain(405, "Only GET, HEAD and POST are supported.")
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether an origin is this server. The scheme is not checked if a proxy may have changed it."""
        schemes = ("http",) if isinstance(self._authorize, Token) else ("http", "https")
        return any(origin == f"{scheme}://{host}" for scheme in schemes)

    async def _who(self, request: Request) -> Who:
        found = self._authorize(request)
        return await found if inspect.isawaitable(found) else found

    def _unknown(self) -> Response:
        if isinstance(self._authorize, Token):
            return _plain(401, "Not authorized. Open the address that `holdfast ui` printed; it contains the token.")
        return _plain(401, "Not authorized. Log in first, or ask for access to this web UI.")

    async def _form(self, request: Request, who: str | bool) -> dict[str, str] | Response:
        """Return the fields of a form, or the refusal of a form that this web UI did not make for this user."""
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _BODY_MOST:
            return _plain(413, "The form is too large, or has no Content-Length.")
        body = await request.body()
        try:
            # In a thread, because it may be large and other requests must not wait.
            form = await run_in_threadpool(lambda: unpacked(body.decode("utf-8", "replace"), FIELDS_MOST))
        except InvalidArgument as error:
            return _plain(400, f"Invalid form: {error}.")
        if not hmac.compare_digest(form.get(SEAL, "").encode("utf-8", "replace"), self._seal(who).encode()):
            return _plain(
                403, "This form was not made for you here, or it has expired. Nothing was done. Reload the page."
            )
        return form

    def _seal(self, who: str | bool) -> str:
        return hmac.new(self._secret, str(who).encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def loopback_hosts(port: int) -> frozenset[str]:
    """Return the Host values of a server on this machine. Other names are refused against DNS rebinding."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _plain(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)


def _with_headers(send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Any = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return answer
