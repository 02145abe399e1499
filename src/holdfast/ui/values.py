"""Values of a state as a collapsible tree, and as JSON text to read and edit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.codec import jsontext, msgpack
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.looking.tree import shown as python
from holdfast.types import MissingValue
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.html import text as shown
from holdfast.ui.words import plural, size

TEXT_MOST: Final = 20_000  # characters of one text; the Raw tab shows more
_NODES_MOST: Final = 3_000
_ITEMS_MOST: Final = 100
_KEY_MOST: Final = 200
_OPEN_DEPTH: Final = 2
_SHORT: Final = 80
_GLANCED: Final = 3
_PLAIN: Final = (bool, int, float, type(None))


def long_text(content: str, limit: int = TEXT_MOST) -> Html:
    """Return a text, cut if it is very long."""
    cut = shown(content[:limit])
    if len(content) <= limit:
        return joined(cut)
    return joined(cut, tag("span", f" … {plural(len(content) - limit, 'more character')}, see Raw", class_="cut"))


def tree(value: Any) -> Html:
    """Return a value as a tree."""
    return tag("div", _Tree().node("state", value, 0), class_="tree")


class _Tree:
    def __init__(self) -> None:
        self._left = _NODES_MOST

    def node(self, name: Child, value: Any, depth: int) -> Html:
        self._left -= 1
        label = tag("span", name, class_="key")
        if isinstance(value, dict) and value:
            about = plural(len(value), "key") + _glance(value)
            return self._branch(label, about, self._of_dict(value, depth), len(value), depth)
        if isinstance(value, list | tuple | set | frozenset) and value:
            about = plural(len(value), "item") + ("" if isinstance(value, list) else f", {type(value).__name__}")
            return self._branch(label, about, self._of_list(value, depth), len(value), depth)
        return tag("div", label, ": ", _leaf(value), class_="leaf")

    def _branch(self, label: Html, about: str, children: Iterator[Html], total: int, depth: int) -> Html:
        found: list[Child] = []
        for number, child in enumerate(children):
            if number == _ITEMS_MOST or self._left <= 0:
                found.append(tag("div", f"… {plural(total - number, 'more')[:-1]}, see Raw", class_="cut"))
                break
            found.append(child)
        summary = tag("summary", label, " ", tag("span", about, class_="dim"))
        return tag("details", summary, tag("div", found), open=depth < _OPEN_DEPTH and total <= _ITEMS_MOST)

    def _of_dict(self, value: dict[Any, Any], depth: int) -> Iterator[Html]:
        for key, item in value.items():
            name = line(key[:_KEY_MOST]) if isinstance(key, str) else line(python(key))[:_KEY_MOST]
            yield self.node(name, item, depth + 1)

    def _of_list(self, value: Any, depth: int) -> Iterator[Html]:
        for index, item in enumerate(value):
            yield self.node(index, item, depth + 1)


def _glance(value: dict[Any, Any]) -> str:
    """Return the first few short strings and numbers of a dict, to tell it from its neighbours."""
    found = [
        f"{line(_said(key)[:20])}: {line(_said(item)[:40])}"
        for key, item in list(value.items())[:_GLANCED]
        if isinstance(item, str | int | float) and len(_said(item)[:41]) <= 40
    ]
    return f" · {', '.join(found)}" if found else ""


def _said(value: Any) -> str:
    return value if isinstance(value, str) else python(value)


def _leaf(value: Any) -> Html:
    if isinstance(value, str):
        if len(value) <= _SHORT and "\n" not in value:
            return tag("span", line(value), class_="str", dir="auto")
        return tag("pre", long_text(value), class_="str", dir="auto")
    if isinstance(value, _PLAIN):
        return tag("span", python(value)[:TEXT_MOST], class_="lit")
    if isinstance(value, MissingValue):
        return tag("span", f"lost: {line(value.why)}", class_="bad")
    if isinstance(value, bytes):
        return tag("span", f"{size(len(value))} of bytes: {value[:32].hex(' ')}", class_="lit")
    return tag("span", f"{type(value).__name__} {line(_said(value)[:_KEY_MOST])}", class_="lit")


def brief(value: Any, limit: int = 200) -> str:
    """Return a value in one line."""
    try:
        content = value if isinstance(value, str) else to_text(value, indent=0)
    except HoldfastError:
        content = python(value)
    return line(content[:limit]) + ("…" if len(content) > limit else "")


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
