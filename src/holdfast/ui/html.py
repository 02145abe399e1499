"""Build HTML from elements. All text is escaped; only `tag` and `joined` produce markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

from holdfast.looking import printable

_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Html(str):
    """Markup. A str that is not Html is text and is escaped."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Html | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """Return an element. None and False leave an attribute out. `class_` is written "class", `data_key` "data-key"."""
    opened = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(opened if name in _VOID else f"{opened}{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    """Concatenate children, escaping text."""
    return Html("".join(_child(child) for child in children))


def text(content: str) -> str:
    """Return text from the store with control and bidi characters escaped."""
    return printable.block(content)


def line(content: str) -> str:
    """Return text from the store in one line, escaped like `text`."""
    return printable.line(content)


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape(_encodable(child), quote=True)
    if isinstance(child, int | float):
        return str(child)
    return "".join(_child(each) for each in child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(_encodable(str(value)), quote=True)}"'


def _encodable(content: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, and NUL, which browsers drop."""
    return content.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
