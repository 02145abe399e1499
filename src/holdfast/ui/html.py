"""HTML, built from elements. Every text is escaped when it becomes part of one; nothing else makes markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

from holdfast.looking import printable

_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Html(str):
    """Markup. Made by `tag` and `joined` only, so whatever is no Html is text."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Html | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. Attributes that are None or False are left out; "_" in their names is "-" ("class_": "class")."""
    opened = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(opened if name in _VOID else f"{opened}{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    """Children after each other, texts escaped."""
    return Html("".join(_child(child) for child in children))


def text(content: str) -> str:
    """A text from the store as it can be shown: what a browser would obey (bidi, controls) is spelled out."""
    return printable.block(content)


def line(content: str) -> str:
    """The same in one line."""
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
    """A text without what UTF-8 does not have, and without NUL, which a browser takes out of the middle of words."""
    return content.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
