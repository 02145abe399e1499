"""What every page stands in: the addresses, the frame around it, and who looks at it."""

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
_AGES: Final = re.compile(r"(<time [^>]*>)[^<]*")  # they grow while nothing happens, and the browser counts them itself


class Site(msgspec.Struct, frozen=True):
    """What the page shows: a store, under a title, and what may be done with it."""

    hf: Holdfast
    title: str
    may_write: bool
    redacting: Redacting


class View:
    """One request: where it stands, and the frame for its answer."""

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
        """A text from the store in one line, redacted: first that, or what it looks for may be spelled out."""
        return line(self.site.redacting.message(text))

    def redacted(self, value: T) -> T:
        """A value of the store, or a record of it, as it may reach a browser. NotRedacted if that cannot be told."""
        found: T = self.site.redacting.value(value)
        return found

    def asked(self, name: str, default: str = "") -> str:
        """A word of the query."""
        return self._words.get(name, default)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number of the query, within bounds, whatever was written there."""
        word = self.asked(name)
        if not (word.isascii() and word.removeprefix("-").isdecimal() and len(word) < 18):
            return default
        return min(max(int(word), least), most)

    def url(self, path: str, **query: str | int | None) -> str:
        """The address of a page here."""
        words = {name: value for name, value in query.items() if value is not None and value != ""}
        return f"{self._root}{path}{'?' if words else ''}{packed(words)}"

    def thread(self, name: str) -> str:
        return self.url("/thread", name=name)

    def step(self, thread: str, id: str, view: str | None = None) -> str:
        return self.url("/step", thread=thread, id=id, view=view)

    def form(self, action: str, /, *children: Child, **given: str | int) -> Html:
        """A form that does something, sealed. Nothing of it is done before it was confirmed."""
        seal = hidden(SEAL, self._seal)
        return tag(
            "form", seal, self.given(**given), children, method="post", action=self.url(f"/act/{action}"), class_="act"
        )

    def given(self, **words: str | int) -> Html | None:
        """What a form says that nobody types into it."""
        return hidden(GIVEN, packed(words)) if words else None

    def later(self, part: str, said: str, href: str, **attributes: str | None) -> Html:
        """A part that takes its time, so the page asks for it once it is shown; by a link without scripts."""
        link = tag("noscript", tag("a", said, href=href))
        return tag("section", link, data_lazy=part, id=f"part-{part}", **attributes)

    def page(self, title: str, *body: Child, here: str = "", status: int = 200) -> Response:
        """A whole page."""
        links = [("/", "Threads"), ("/waiting", "Waiting"), ("/store", "Store")]
        nav = [
            tag("a", name, href=self.url(path), aria_current="page" if path == here else None) for path, name in links
        ]
        mode = "may change the store" if self.site.may_write else "read-only"
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
        skip = tag("a", "Skip to the content", href="#content", class_="skip")
        main = tag("main", body, id="content", tabindex="-1")
        document = tag("html", head, tag("body", skip, top, main), lang="en", data_now=datetime.now(UTC).isoformat())
        return answer(joined(Html("<!doctype html>\n"), document), status)

    def part(self, name: str, body: Html) -> Response:
        """A part of a page by itself, for the page that has it to stay as it is where nothing changed."""
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
    """A part of a page that is asked for again while somebody looks at it."""
    return tag(
        element, body, id=f"part-{part}", data_live=part, data_every=f"{every:g}", data_mark=_mark(body), **attributes
    )


def _mark(body: Html) -> str:
    return hashlib.sha256(_AGES.sub(r"\1", body).encode("utf-8", "replace")).hexdigest()[:24]
