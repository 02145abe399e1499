"""What every page stands in: the addresses, the frame around it, and who looks at it."""

from __future__ import annotations

import hashlib
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.handle import Holdfast
from holdfast.redaction import Redaction
from holdfast.ui.guard import SEAL
from holdfast.ui.html import Child, Html, joined, line, tag

# Names are how things are found, and are never redacted where they are stored either.
_NAMES: Final = frozenset({"thread", "id", "parent", "digest", "kind", "status", "effect", "about", "trigger", "found"})


class Site(msgspec.Struct, frozen=True):
    """What the page shows: a store, under a title, and what may be done with it."""

    hf: Holdfast
    title: str
    may_write: bool
    redaction: Redaction

    def redacted(self, value: Any) -> Any:
        """A value of the store, or a record with such values, as it may reach a browser."""
        if isinstance(value, msgspec.Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return msgspec.structs.replace(
                value, **{name: each if name in _NAMES else self.redacted(each) for name, each in fields.items()}
            )
        if isinstance(value, list | tuple) and any(isinstance(each, msgspec.Struct) for each in value):
            return type(value)(self.redacted(each) for each in value)
        return self.redaction.value(value)


class View:
    """One request: where it stands, and the frame for its answer."""

    def __init__(self, site: Site, request: Request) -> None:
        self.site = site
        self.hf = site.hf
        self.request = request
        self._root = str(request.scope.get("root_path", "")).rstrip("/")
        state: dict[str, Any] = request.scope.get("state", {})
        self.who: str = state.get("who", "")
        self._seal: str = state.get("seal", "")

    def told(self, text: str) -> str:
        """A text from the store in one line, redacted: first that, or what it looks for may be spelled out."""
        return line(self.site.redaction.message(text))

    def asked(self, name: str, default: str = "") -> str:
        """A word of the query, or of the form."""
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number of the query, within bounds, whatever was written there."""
        word = self.asked(name)
        if not (word.isascii() and word.removeprefix("-").isdecimal() and len(word) < 18):
            return default
        return min(max(int(word), least), most)

    def url(self, path: str, **query: str | int | None) -> str:
        """The address of a page here."""
        words = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self._root}{path}{'?' if words else ''}{urlencode(words, errors='replace')}"

    def thread(self, name: str) -> str:
        return self.url("/thread", name=name)

    def step(self, thread: str, id: str, view: str | None = None) -> str:
        return self.url("/step", thread=thread, id=id, view=view)

    def form(self, action: str, /, *children: Child, **hidden: str | int) -> Html:
        """A form that does something, sealed. Nothing of it is done before it was confirmed."""
        fields = [tag("input", type="hidden", name=name, value=str(value)) for name, value in hidden.items()]
        seal = tag("input", type="hidden", name=SEAL, value=self._seal)
        return tag("form", seal, fields, children, method="post", action=self.url(f"/act/{action}"), class_="act")

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
        document = tag("html", head, tag("body", skip, top, main), lang="en")
        return answer(joined(Html("<!doctype html>\n"), document), status)

    def part(self, name: str, body: Html) -> Response:
        """A part of a page by itself, for the page that has it to stay as it is where nothing changed."""
        mark = f'"{hashlib.sha256(body.encode()).hexdigest()[:24]}"'
        if self.request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers={"ETag": mark})
        response = answer(body)
        response.headers["ETag"] = mark
        response.headers["X-Part"] = name
        return response


def answer(body: str, status: int = 200) -> Response:
    return Response(body.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")


def live(part: str, body: Child, *, every: float = 2.0, element: str = "div", **attributes: str | None) -> Html:
    """A part of a page that is asked for again while somebody looks at it."""
    return tag(element, body, id=f"part-{part}", data_live=part, data_every=f"{every:g}", **attributes)
