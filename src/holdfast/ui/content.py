"""Values and texts as templates show them: outlines of states, JSON to read and edit, and Markdown."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from markdown_it import MarkdownIt
from markupsafe import Markup

from holdfast import text as printable
from holdfast.codec import jsontext, msgpack
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.inspect import shown as python
from holdfast.inspect import unwrapped
from holdfast.text import counted, sized
from holdfast.types import MissingValue

TEXT_MOST: Final = 20_000  # characters of one text; the raw state has the rest
_NODES_MOST: Final = 3_000
_ITEMS_MOST: Final = 100
_KEY_MOST: Final = 200
_OPEN_DEPTH: Final = 1
_SHORT: Final = 80
_GLANCED: Final = 3
_INTERNAL: Final = "$"  # keys that adapters add start with it
_PLAIN: Final = (bool, int, float, type(None))


class LongText(NamedTuple):
    """A text, cut if it is very long, and the number of characters that are left out."""

    text: str
    left_out: int


def long_text(text: str, limit: int = TEXT_MOST) -> LongText:
    return LongText(text[:limit], max(len(text) - limit, 0))


class OutlineNode(NamedTuple):
    """A value in an outline: a branch with `children`, or a leaf with a `text` of a `kind`.

    `left_out` counts the items that are not shown.
    """

    name: str
    kind: str
    text: str
    children: tuple[OutlineNode, ...] = ()
    left_out: int = 0
    is_open: bool = False
    about: str = ""


def outline(value: Any, *, internal: bool = False) -> OutlineNode:
    """Return a value as an outline. Keys of adapters are left out unless `internal`."""
    return _Outline(internal=internal).node("state", value, 0)


class _Outline:
    def __init__(self, *, internal: bool) -> None:
        self._left = _NODES_MOST
        self._internal = internal

    def node(self, name: str, value: Any, depth: int) -> OutlineNode:
        self._left -= 1
        if not self._internal:
            value = unwrapped(value)  # a message of LangGraph: its fields, without its class and encoding
        if isinstance(value, dict) and value:
            return self._branch(name, counted(len(value), "entry") + _glance(value), self._of_dict(value), depth)
        if isinstance(value, list | tuple | set | frozenset) and value:
            about = counted(len(value), "item") + ("" if isinstance(value, list) else f", {type(value).__name__}")
            return self._branch(name, about, [(str(index), item) for index, item in enumerate(value)], depth)
        kind, text = _leaf(value)
        return OutlineNode(name, kind, text)

    def _branch(self, name: str, about: str, items: list[tuple[str, Any]], depth: int) -> OutlineNode:
        children: list[OutlineNode] = []
        for key, item in items[:_ITEMS_MOST]:
            if self._left <= 0:
                break
            children.append(self.node(key, item, depth + 1))
        is_open = depth < _OPEN_DEPTH and len(items) <= _ITEMS_MOST
        return OutlineNode(name, "branch", "", tuple(children), len(items) - len(children), is_open, about)

    def _of_dict(self, value: dict[Any, Any]) -> list[tuple[str, Any]]:
        return [
            (key[:_KEY_MOST] if isinstance(key, str) else python(key)[:_KEY_MOST], item)
            for key, item in value.items()
            if self._internal or not is_internal(key)
        ]


def is_internal(key: Any) -> bool:
    """Whether a key of a state was added by an adapter."""
    return isinstance(key, str) and key.startswith(_INTERNAL) and len(key) > 1


def _glance(value: dict[Any, Any]) -> str:
    """Return the first few short strings and numbers of a dict, to tell it from its neighbours."""
    found = [
        f"{_said(key)[:20]}: {_said(item)[:40]}"
        for key, item in list(value.items())[:_GLANCED]
        if isinstance(item, str | int | float) and len(_said(item)[:41]) <= 40
    ]
    return f" · {', '.join(found)}" if found else ""


def _said(value: Any) -> str:
    return value if isinstance(value, str) else python(value)


def _leaf(value: Any) -> tuple[str, str]:
    if isinstance(value, str):
        return ("str" if len(value) <= _SHORT and "\n" not in value else "long"), value
    if isinstance(value, _PLAIN):
        return "lit", python(value)[:TEXT_MOST]
    if isinstance(value, MissingValue):
        return "bad", f"lost: {value.why}"
    if isinstance(value, bytes):
        return "lit", f"{sized(len(value))} of bytes: {value[:32].hex(' ')}"
    return "lit", f"{type(value).__name__} {_said(value)[:_KEY_MOST]}"


# -- JSON -------------------------------------------------------------------------------------------------------------


def as_json(value: Any) -> str:
    """Return a value as JSON, or as a Python repr if parts of it are lost."""
    try:
        return to_text(value)
    except HoldfastError:
        return python(value)


def brief(value: Any, limit: int = 200) -> str:
    """Return a value in one line."""
    try:
        content = value if isinstance(value, str) else to_text(value, indent=0)
    except HoldfastError:
        content = python(value)
    return printable.line(content[:limit]) + ("…" if len(content) > limit else "")


def to_text(value: Any, indent: int = 2) -> str:
    """Return a value as lossless JSON. Types that JSON lacks become an object with one key like "$datetime"."""
    written = jsontext.to_text(msgpack.encode(value))
    return msgspec.json.format(written, indent=indent).decode() if indent else written.decode()


def from_text(written: str) -> Any:
    """Parse the JSON of `to_text`. Raises InvalidArgument if it is not JSON or has an invalid "$" form."""
    try:
        return msgpack.decode(jsontext.from_text(msgspec.json.encode(msgspec.json.decode(written))))
    except (HoldfastError, msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise InvalidArgument(f"this is not valid JSON for a value: {str(error)[:200]}") from error


# -- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(text: str) -> Markup:
    """Render the Markdown of a message. HTML in it is text; links and images are shown as they were written."""
    tokens = _renderer().parse(printable.block(text))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "p"  # the headings of the page are its own
            if token.nesting > 0:
                token.attrSet("class", "heading")
    return Markup(_renderer().renderer.render(tokens, _renderer().options, {}))  # noqa: S704 - it escapes all text


@cache
def _renderer() -> MarkdownIt:
    options = {"html": False, "linkify": False, "typographer": False, "breaks": True, "maxNesting": 20}
    # A link in the text of a model could lead anywhere, and an image could tell its server that it was seen.
    return (
        MarkdownIt("commonmark", options)
        .enable("table")
        .disable(["link", "image", "autolink", "html_inline", "html_block"])
    )
