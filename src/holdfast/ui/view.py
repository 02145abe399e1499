"""The request as pages see it: parameters, URLs, forms, redaction and the page frame."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.handle import Holdfast
from holdfast.ui.addresses import GIVEN, opened, packed, query_of, unpacked
from holdfast.ui.guard import SEAL
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.redacting import Redacting

T = TypeVar("T")
_AGES: Final = re.compile(r"(<time [^>]*>)[^<]*")  # ages are updated by the browser, so they do not count as a change


class Site(msgspec.Struct, frozen=True):
    """The configuration of the web UI: the store, its title, whether it may write, and the redaction."""

    hf: Holdfast
    title: str
    may_write: bool
    redacting: Redacting


class View:
    """One request, with what is needed to build its response."""

    def __init__(self, site: Site, request: Request) -> None:
        self.site = site
        self.hf = site.hf
        self.request = request
        words = unpacked(query_of(request))
        self.is_packed = GIVEN in words
        self._words = opened(words)
        self._root = str(request.scope.get("root_path", "")).rstrip("/")
        state: dict[str, Any] = request.scope.get("state", {})
        self.who: str = state.get("who", "")
        self._seal: str = state.get("seal", "")
        self.typed: dict[str, str] = state.get("form", {})

    def told(self, text: str) -> str:
        """Return text from the store in one line: redacted first, then escaped."""
        return line(self.site.redacting.message(text))

    def redacted(self, value: T) -> T:
        """Redact a value or a record. Raises InvalidArgument if the redaction function fails."""
        found: T = self.site.redacting.value(value)
        return found

    def asked(self, name: str, default: str = "") -> str:
        """Return a query parameter."""
        return self._words.get(name, default)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a query parameter as a whole number within bounds; `default` if it is not a number."""
        word = self.asked(name)
        if not (word.isascii() and word.removeprefix("-").isdecimal() and len(word) < 18):
            return default
        return min(max(int(word), least), most)

    def url(self, path: str, **query: str | int | None) -> str:
        """Return the URL of a page."""
        words = {name: value for name, value in query.items() if value is not None and value != ""}
        return f"{self._root}{path}{'?' if words else ''}{packed(words)}"

    def thread(self, name: str) -> str:
        return self.url("/thread", name=name)

    def step(self, thread: str, id: str, view: str | None = None) -> str:
        return self.url("/step", thread=thread, id=id, view=view)

    def form(self, action: str, /, *children: Child, **given: str | int) -> Html:
        """Return a signed form for an action. The action is carried out only after a confirmation."""
        seal = hidden(SEAL, self._seal)
        return tag(
            "form", seal, self.given(**given), children, method="post", action=self.url(f"/act/{action}"), class_="act"
        )

    def given(self, **words: str | int) -> Html | None:
        """Return the hidden field with the parameters that the user does not type."""
        return hidden(GIVEN, packed(words)) if words else None

    def later(self, part: str, said: str, href: str, **attributes: str | None) -> Html:
        """Return a placeholder for a slow part that the page loads later, with a link for use without scripts."""
        link = tag("noscript", tag("a", said, href=href))
        return tag("section", link, data_lazy=part, id=f"part-{part}", **attributes)

    def page(self, title: str, *body: Child, here: str = "", status: int = 200) -> Response:
        """Return a whole page."""
        links = [("/", "Threads"), ("/waiting", "Waiting"), ("/store", "Store")]
        nav = [
            tag("a", name, href=self.url(path), aria_current="page" if path == here else None) for path, name in links
        ]
        mode = "writes allowed" if self.site.may_write else "read-only"
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{line(title)} · Holdfast"),
            tag("link", rel="stylesheet", href=self.url("/static/page.css")),
            tag("link", rel="icon", type="image/svg+xml", href=self.url("/static/mark.svg")),
            tag("script", src=self.url("/static/page.js"), defer=True),
        )
        top = tag(
            "header",
            tag("a", tag("b", "Holdfast"), href=self.url("/"), class_="mark"),
            tag("nav", nav, aria_label="Pages"),
            tag("span", line(self.site.title), class_="where", title=line(self.site.title)),
            tag("span", mode, class_="mode" + (" write" if self.site.may_write else "")),
            tag("span", "live", id="live", class_="live", role="status", aria_live="off", hidden=True),
        )
        skip = tag("a", "Skip to content", href="#content", class_="skip")
        main = tag("main", body, id="content", tabindex="-1")
        document = tag("html", head, tag("body", skip, top, main), lang="en", data_now=datetime.now(UTC).isoformat())
        return answer(joined(Html("<!doctype html>\n"), document), status)

    def part(self, name: str, body: Html) -> Response:
        """Return a part of a page, or status 304 if it has not changed."""
        mark = f'"{_mark(body)}"'
        if self.request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers={"ETag": mark})
        response = answer(body)
        response.headers["ETag"] = mark
        response.headers["X-Part"] = name
        return response


def answer(body: str, status: int = 200) -> Response:
    return Response(body.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")


def hidden(name: str, value: str) -> Html:
    return tag("input", type="hidden", name=name, value=value)


def live(part: str, body: Html, *, every: float = 2.0, element: str = "div", **attributes: str | None) -> Html:
    """Return a part of a page that the browser reloads every few seconds."""
    return tag(
        element, body, id=f"part-{part}", data_live=part, data_every=f"{every:g}", data_mark=_mark(body), **attributes
    )


def _mark(body: Html) -> str:
    return hashlib.sha256(_AGES.sub(r"\1", body).encode("utf-8", "replace")).hexdigest()[:24]
