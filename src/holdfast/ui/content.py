"""Values and texts as templates show them: outlines of states, JSON to read and edit, and Markdown."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from markdown_it import MarkdownIt
from markupsafe import Markup

from holdfast import text as printable
from holdfast.codec import jsontext, msgpack
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.inspect import message_in, unwrapped, words_of
from holdfast.inspect import shown as python
from holdfast.text import counted, sized
from holdfast.types import Effect, MissingValue

TEXT_MOST: Final = 20_000  # characters of one text; the raw state has the rest
_NODES_MOST: Final = 3_000
_ITEMS_MOST: Final = 100
_KEY_MOST: Final = 200
_OPEN_DEPTH: Final = 1
_SHORT: Final = 80
_GLANCED: Final = 3
_GLANCE: Final = 100  # characters of the arguments or the result of a call in its heading
_TOKEN: Final = re.compile(
    r'(?P<token>(?P<string>"(?:[^"\\]|\\.)*")|-?\d[\d.eE+-]*|\b(?:true|false|null)\b)(?P<colon>\s*:)?'
)
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


def coloured(value: Any) -> Markup:
    """Return a value as JSON in which keys, strings and other values have classes; cut if it is very long."""
    long = long_text(as_json(value))
    shown, at = Markup(), 0
    written = printable.block(long.text)
    for found in _TOKEN.finditer(written):
        kind = "key" if found["colon"] else "str" if found["string"] else "lit"
        shown += written[at : found.start()] + Markup('<span class="{}">{}</span>').format(kind, found["token"])
        at = found.end("token")
    shown += written[at:]
    if long.left_out:
        more = counted(long.left_out, "more character")
        shown += Markup('<span class="cut"> … {}, see the raw state</span>').format(more)
    return shown


def call_glance(effect: Effect) -> str:
    """Return the arguments and the result of a call in one short line, as a program writes them.

    A model's reply is shortened to its first words.
    """
    arguments, result = effect.arguments, effect.result
    if effect.effect == "model" and (words := words_of(message_in(result))):
        return f"→ {words[:_GLANCE]}{'…' if len(words) > _GLANCE else ''}"
    given = "" if arguments is None else brief(arguments, _SHORT)
    if type(arguments) is dict and all(type(key) is str and key.isidentifier() for key in arguments):
        given = ", ".join(f"{key}={brief(_quoted(value), _SHORT)}" for key, value in arguments.items())
    given = f"({given[:_GLANCE]}{'…' if len(given) > _GLANCE else ''})" if given else ""
    return f"{given} → {brief(_quoted(result), _GLANCE)}".strip() if result is not None else given


def _quoted(value: Any) -> Any:
    return to_text(value[:_GLANCE], indent=0) if isinstance(value, str) else value


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
        word = f'. Write a text in quotes, like "{written}".' if written.isalnum() and len(written) < _SHORT else ""
        raise InvalidArgument(f"this is not JSON ({str(error)[:200]}); nothing was done{word}") from error


# -- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(text: str) -> Markup:
    """Render the Markdown of a message. HTML in it is text; links and images are shown as they were written."""
    tokens = _renderer().parse(printable.block(text))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "p"  # the headings of the page are its own
            if token.nesting > 0:
                token.attrSet("class", "heading")
        aligned = token.attrs.pop("style", "")  # inline styles are forbidden by the policy of the page
        if aligned:
            token.attrSet("class", str(aligned).removeprefix("text-align:"))
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
