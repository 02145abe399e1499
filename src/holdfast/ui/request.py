"""The request as pages see it: parameters, URLs, redaction, and rendering of pages and their live parts.

Parameters of URLs and forms are encoded so that every name survives, even with newlines, NUL or lone surrogates.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from markupsafe import Markup
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.inspect import LastMessage
from holdfast.ui.figures import Figures, Remembered
from holdfast.ui.redactor import Redactor
from holdfast.ui.templates import render

T = TypeVar("T")

GIVEN: Final = "given"
"""The form field with the parameters that are not typed. Its encoding protects line ends, which browsers change."""

SEAL: Final = "seal"
"""The form field with the signature."""

FIELDS_MOST: Final = 50
_AGES: Final = re.compile(r"(<time [^>]*>)[^<]*")  # ages are updated by the browser, so they do not count as a change


# -- parameters -------------------------------------------------------------------------------------------------------


def packed(words: Mapping[str, str | int]) -> str:
    """Encode parameters as an ASCII query string."""
    return urlencode({name: str(value) for name, value in words.items()}, errors="surrogatepass")


def unpacked(query: str, most: int | None = None) -> dict[str, str]:
    """Decode a query string. The last of repeated parameters counts. Raises InvalidArgument for more than `most`."""
    for errors in ("surrogatepass", "replace"):
        try:
            return dict(parse_qsl(query, keep_blank_values=True, errors=errors, max_num_fields=most))
        except UnicodeDecodeError:
            continue  # not written by this web UI
        except ValueError as error:
            raise InvalidArgument(f"a form has at most {most} fields") from error
    raise AssertionError


def opened(words: Mapping[str, str]) -> dict[str, str]:
    """Merge the parameters that a form carried in its field `given` into the others."""
    rest = {name: value for name, value in words.items() if name != GIVEN}
    return {**rest, **unpacked(words.get(GIVEN, ""))}


def query_of(request: HTTPConnection) -> str:
    """Return the query string of a request as it was sent. Starlette's own property fails if it is not UTF-8."""
    sent: bytes = request.scope.get("query_string", b"")
    return sent.decode("latin-1")


# -- pages ------------------------------------------------------------------------------------------------------------


class Site(msgspec.Struct, frozen=True):
    """The configuration of the web UI: the store, its title, whether it may write, and the redaction."""

    hf: Holdfast
    title: str
    may_write: bool
    redactor: Redactor
    inbox_count: Figures[int | None]
    words: Remembered[str, LastMessage]
    graph: Any = None  # that answers of LangGraph threads resume


class PagePart(NamedTuple):
    """A part of a page: its template and its data. The browser reloads it every few seconds; never if `every` is 0.

    A lazy part is loaded after the page, because it takes long. `link` is the text of the link without scripts.
    """

    template: str
    data: Callable[[], Mapping[str, Any]]
    every: float = 2.0
    label: str = ""
    is_lazy: bool = False
    link: str = ""


class View:
    """One request, with what is needed to build its response. Templates use it as `view`."""

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
        self.seal: str = state.get("seal", "")
        self.typed: dict[str, str] = state.get("form", {})

    def told(self, text: str) -> str:
        """Redact a text from the store. It never raises."""
        return self.site.redactor.message(text)

    def lost(self, messages: Iterable[str]) -> list[str]:
        """Redact the messages about unreadable records."""
        return [self.told(each) for each in messages]

    def redacted(self, value: T) -> T:
        """Redact a value or a record. Raises InvalidArgument if the redaction function fails."""
        found: T = self.site.redactor.value(value)
        return found

    # -- parameters -------------------------------------------------------------------------------------------------

    def asked(self, name: str, default: str = "") -> str:
        """Return a query parameter."""
        return self._words.get(name, default)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a query parameter as a whole number within bounds; `default` if it is not a number."""
        word = self.asked(name)
        if not (word.isascii() and word.removeprefix("-").isdecimal() and len(word) < 18):
            return default
        return min(max(int(word), least), most)

    # -- URLs and forms ---------------------------------------------------------------------------------------------

    def url(self, path: str, **query: str | int | None) -> str:
        """Return the URL of a page."""
        words = {name: value for name, value in query.items() if value is not None and value != ""}
        return f"{self._root}{path}{'?' if words else ''}{packed(words)}"

    def same(self, **changes: str | int | None) -> str:
        """Return the URL of this page with other parameters."""
        words = {name: value for name, value in self._words.items() if name not in ("part", "done")}
        # Starlette's path contains the root path of a mounted application.
        path = self.request.scope["path"].removeprefix(self._root)
        return self.url(path, **{**words, **changes})

    def thread(self, name: str, at: str | None = None) -> str:
        return self.url("/thread", name=name, at=at)

    def packed(self, **words: str | int) -> str:
        """Encode the parameters of a form that are not typed."""
        return packed(words)

    def redirect(self, there: str) -> Response:
        return Response(status_code=303, headers={"Location": there})

    # -- rendering --------------------------------------------------------------------------------------------------

    def page(
        self,
        template: str,
        title: str,
        parts: Mapping[str, PagePart] | None = None,
        *,
        here: str = "",
        status: int = 200,
        **data: Any,
    ) -> Response:
        """Return a whole page, or the one of its parts that the request asks for."""
        count = PagePart("count.html", lambda: {"needed": self.site.inbox_count.get()}, every=5)
        parts = {**(parts or {}), "count": count}
        asked = parts.get(self.asked("part"))
        if asked is not None:
            return self._part(self.asked("part"), asked)
        drawn = {name: self._placed(name, part) for name, part in parts.items()}
        body = render(
            template,
            view=self,
            title=title,
            here=here,
            now=datetime.now(UTC).isoformat(),
            **drawn,
            **data,
        )
        return answer(body, status)

    def _placed(self, name: str, part: PagePart) -> Markup:
        if part.is_lazy and self.asked("with") != name:
            return render("part.html", view=self, name=name, part=part, body=None, mark="")
        body = render(part.template, view=self, **part.data())
        return render("part.html", view=self, name=name, part=part, body=body, mark=_mark(body))

    def _part(self, name: str, part: PagePart) -> Response:
        """Return a part, or status 304 if it has not changed."""
        body = render(part.template, view=self, **part.data())
        mark = f'"{_mark(body)}"'
        if self.request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers={"ETag": mark})
        response = answer(body)
        response.headers["ETag"] = mark
        response.headers["X-PagePart"] = name
        return response


def answer(body: str, status: int = 200) -> Response:
    return Response(body.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")


def _mark(body: str) -> str:
    return hashlib.sha256(_AGES.sub(r"\1", body).encode("utf-8", "replace")).hexdigest()[:24]
