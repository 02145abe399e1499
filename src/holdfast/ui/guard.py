"""Who may ask: by the token of a loopback server, or the service's own word; and that no other page asks for them.

Nothing behind it is reached by a request that it refuses: not a style sheet, not the page that says "not found".
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
from holdfast.ui.addresses import FIELDS_MOST, packed, query_of, unpacked

Who: TypeAlias = "str | bool | Response | None"
Authorize: TypeAlias = "Callable[[HTTPConnection], Who | Awaitable[Who]]"
"""Says whether a request may look: False or None for no, True or, better, a name: it is recorded with what they do.
A response, to where one logs in for instance, is what is answered to whoever may not."""

SEAL: Final = "seal"  # the field of a form
_TOKEN: Final = "token"  # noqa: S105 - the name of it, in the query
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
    """Authorizes whoever has the token of this server, from the address once and from a cookie then."""

    def __init__(self, token: str, port: int) -> None:
        self._digest = _digest(token)
        self._token = token
        # Cookies do not tell ports apart: two servers on a machine must not throw each other's away.
        self._cookie = f"holdfast-{port}"

    def __call__(self, request: HTTPConnection) -> bool:
        # Starlette's own reader of cookies: the one of Python stops at the first that it does not like, and cookies of
        # other programs on this machine are sent here, too.
        return self._is_it(request.cookies.get(self._cookie))

    def welcome(self, request: Request) -> Response | None:
        """The answer to an address with the token in it: a cookie, and the address without; None if that is wrong."""
        query = unpacked(query_of(request))
        if request.method not in _READING or not self._is_it(query.pop(_TOKEN, None)):
            return None
        rest = packed(query)
        # Built from its parts: a path of "//elsewhere" is no way out.
        there = "/" + quote(request.url.path.lstrip("/"))
        response = RedirectResponse(f"{there}?{rest}" if rest else there, 303)
        # Lax: with "strict" a link to a step that somebody shared, opened from another site, would be without it. What
        # GET answers no other page can read, and forms are sealed and looked at by their origin.
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")
        return response

    def _is_it(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(_digest(given), self._digest)


class Guard:
    """Lets a request through to the application, or answers it."""

    def __init__(
        self, app: ASGIApp, authorize: Authorize, hosts: frozenset[str] | None, secret: bytes | None = None
    ) -> None:
        """`hosts` are the values of Host that are answered; None for any, behind a service that looks itself.

        `secret` is what forms are sealed with, the same in all processes that answer for each other; None for one that
        this process alone has.
        """
        if secret is not None and (type(secret) is not bytes or len(secret) < _SECRET_LEAST):
            raise InvalidArgument(f"secret must be bytes that nobody can guess, at least {_SECRET_LEAST} of them")
        self._app = app
        self._authorize = authorize
        self._hosts = hosts
        self._secret = secret or os.urandom(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets here: the server closes it
        request = Request(scope, receive)
        unchanged, send = send, _with_headers(send)
        refused = self._refused(request)
        if refused is not None:
            await refused(scope, receive, send)
            return
        welcome = self._authorize.welcome(request) if isinstance(self._authorize, Token) else None
        if welcome is not None:  # before who it is: the token must not stay in an address that somebody shares
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
        state["who"] = who if isinstance(who, str) else "the page"
        state["seal"] = self._seal(who)
        if request.method not in _READING:
            form = await self._form(request, who)
            if isinstance(form, Response):
                await form(scope, receive, send)
                return
            state["form"] = form
        await self._app(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        """The answer to a request that did not mean this server, or was made by another page."""
        host = request.headers.get("host", "")
        if self._hosts is not None and host.lower() not in self._hosts:
            return _plain(421, "This is not the server that the request names.")
        origin = request.headers.get("origin")
        if origin is not None and not self._is_own(origin.lower(), host.lower()):
            return _plain(403, "Requests of other pages are refused.")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if request.method not in _READING and site != "same-origin":
            return _plain(403, "Forms of other pages are refused.")
        if request.method not in (*_READING, "POST"):
            return _plain(405, "GET, HEAD and POST are answered.")
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether an origin is this server. Behind a proxy it cannot know by which scheme it was asked."""
        schemes = ("http",) if isinstance(self._authorize, Token) else ("http", "https")
        return any(origin == f"{scheme}://{host}" for scheme in schemes)

    async def _who(self, request: Request) -> Who:
        found = self._authorize(request)
        return await found if inspect.isawaitable(found) else found

    def _unknown(self) -> Response:
        if isinstance(self._authorize, Token):
            return _plain(401, "Open the address, with its token, that `holdfast ui` printed.")
        return _plain(401, "You may not look at this page, or have to say who you are first.")

    async def _form(self, request: Request, who: str | bool) -> dict[str, str] | Response:
        """What a form says, or the answer to one that this page did not make for this person."""
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _BODY_MOST:
            return _plain(413, "The form is too large, or does not say how large it is.")
        body = await request.body()
        try:
            # It may be large, and others are answered meanwhile.
            form = await run_in_threadpool(lambda: unpacked(body.decode("utf-8", "replace"), FIELDS_MOST))
        except InvalidArgument as error:
            return _plain(400, f"That was not understood: {error}.")
        if not hmac.compare_digest(form.get(SEAL, "").encode("utf-8", "replace"), self._seal(who).encode()):
            return _plain(403, "This form is none of this page, or of one that was served before: load it again.")
        return form

    def _seal(self, who: str | bool) -> str:
        return hmac.new(self._secret, str(who).encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def loopback_hosts(port: int) -> frozenset[str]:
    """The values of Host by which a server on this machine is meant. Another name may be anybody's (DNS rebinding)."""
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
