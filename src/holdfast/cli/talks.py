"""Messages as a chat and values as a tree, in lines that are safe to print to a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from holdfast.cli.paint import Colour, columns, cut, painted
from holdfast.looking.chat import Chat, ChatMessage, Part, ToolCall
from holdfast.looking.data import data_of
from holdfast.looking.printable import line, lines
from holdfast.looking.tree import Node, node_of, nodes_in, value_at

_WIDEST: Final = 120  # columns, for wrapped text
_LONGEST: Final = 4000  # characters of one text; --raw shows all
_ROLES: Final[dict[str, Colour]] = {"user": "blue", "assistant": "green", "system": "magenta", "tool": "cyan"}
_HOLDING: Final = ("dict", "list", "tuple", "set", "frozenset")


def chat_lines(chat: Chat) -> Iterator[str]:
    """Yield each message under its role, with tool calls and their results."""
    for message in chat.messages:
        yield from _message(message)


def tree_lines(value: Any, *, depth: int, most: int) -> Iterator[str]:
    """Yield a value as a tree, at most `depth` levels deep and `most` items per level."""
    yield from _node(value, node_of(value), "", depth, most)


def _message(message: ChatMessage) -> Iterator[str]:
    name = "" if message.name is None else f" {line(message.name)}"
    role = line(message.role) or "message"
    yield painted(f"[{message.index}] {role}{name}", _ROLES.get(message.role, "bold"))
    for part in message.parts:
        yield from _part(part, "    ")
    for call in message.calls:
        yield from _call(call)
    yield ""


def _part(part: Part, indent: str) -> Iterator[str]:
    if part.kind == "data":
        yield from _wrapped(in_a_line(part.data), indent)
    elif part.kind == "thought":
        yield from (painted(each, "dim") for each in _wrapped(part.text, f"{indent}(thinks) "))
    else:
        yield from _wrapped(part.text, indent)


def _call(call: ToolCall) -> Iterator[str]:
    given = in_a_line(call.arguments) if call.arguments is not None else ""
    yield painted("  > ", "cyan") + cut(f"{line(call.name)}({given})", max(_width() - 4, 20))
    if call.result is None:
        status = call.status or "no result"
        yield painted(f"  < {line(status)}", "yellow" if status == "in doubt" else "dim")
        return
    mark = "  < error: " if call.is_error else "  < "
    texts = [each for part in call.result for each in _part(part, "")] or [""]
    yield painted(mark, "red" if call.is_error else "cyan") + texts[0]
    yield from (f"    {each}" for each in texts[1:])


def _wrapped(text: str, indent: str) -> list[str]:
    kept = text[:_LONGEST]
    width = max(_width() - len(indent), 20)
    blank = " " * len(indent)
    shown: list[str] = []
    for each in lines(kept):
        shown += textwrap.wrap(each, width, drop_whitespace=False, replace_whitespace=False) or [""]
    if len(text) > _LONGEST:
        shown.append(f"… {len(text) - _LONGEST} more characters")
    return [f"{indent if at == 0 else blank}{each}".rstrip() for at, each in enumerate(shown)]


def _node(value: Any, node: Node, indent: str, depth: int, most: int) -> Iterator[str]:
    key = painted(line(node.key), "cyan") + (": " if node.key else "")
    if node.kind not in _HOLDING:
        text = f'"{line(node.text)}"' if node.kind == "text" else line(node.text)
        more = f" … {node.count} in all" if node.is_cut else ""
        room = max(_width() - len(indent) - len(node.key) - 2 - len(more), 20)
        yield f"{indent}{key}{cut(text, room)}{more}"
        return
    marks = {"dict": "{}", "list": "[]", "tuple": "()"}.get(node.kind, node.kind)
    count = "" if not node.count else f" {node.count}"
    yield f"{indent}{key}{painted(f'{marks}{count}', 'dim')}"
    if depth <= 0:
        return
    page = nodes_in(value, limit=most)
    for inside in page.nodes:
        yield from _node(value_at(value, inside.at), inside, f"{indent}  ", depth - 1, most)
    if page.total > len(page.nodes):
        yield f"{indent}  … {page.total - len(page.nodes)} more"


def in_a_line(value: Any) -> str:
    """Return a value as one line of JSON that is safe to print."""
    return line(json.dumps(data_of(value), ensure_ascii=False))


def _width() -> int:
    return min(columns(), _WIDEST)
