"""Threads, checkpoints, calls, messages and values as lines of text that are safe to print to a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast import inspect
from holdfast.cli.terminal import columns, cut, joined, shortened, styled, worded
from holdfast.text import counted, line, lines

if TYPE_CHECKING:
    from rich.text import Text

_WIDEST: Final = 120  # columns, for wrapped text
_LONGEST: Final = 4000  # characters of one text; --raw shows all
_ROLES: Final = {"user": "blue", "assistant": "green", "system": "magenta", "tool": "cyan"}
_CONTAINERS: Final = ("dict", "list", "tuple", "set", "frozenset")
_SAVED: Final = "saved"
_SEQS: Final = 8  # checkpoints of a problem to list
STATUSES: Final = {
    "running": "green",
    "completed": "dim",
    "waiting": "cyan",
    "question": "cyan",
    "in doubt": "yellow",
    "interrupted": "red",
    "released": "red",
    "failed": "red",
    "dead": "red",
    "stuck": "magenta",
    "halted": "magenta",
    "queued": "blue",
}


# -- status ------------------------------------------------------------------------------------------------------------


def status_text(status: str, *, has_run: bool) -> str:
    """Return the status of a run; for a thread without a run, "saved" and the status given to its last save."""
    if has_run:
        return status
    return _SAVED if status == "running" else f"{_SAVED} as {status}"


def status_style(text: str) -> str | None:
    """Return the style of a status text; a remark in brackets after it is ignored."""
    return "dim" if text.startswith(_SAVED) else STATUSES.get(text.partition(" (")[0])


def status_line(status: str, reason: str | None, *, has_run: bool) -> Text:
    """Return a status with its reason."""
    text = status_text(status, has_run=has_run)
    more = "" if reason is None else worded(f": {line(reason.removeprefix(f'{status}: '))}")
    return joined([styled(text, status_style(text)), more], "")


# -- records and problems ----------------------------------------------------------------------------------------------


def fields(record: object, names: str) -> dict[str, Any]:
    """Return some attributes of a record as data; `names` are separated by spaces."""
    return {name: getattr(record, name) for name in names.split()}


class ReportedProblem(Protocol):
    """A problem that a method of the handle reported."""

    @property
    def thread(self) -> str | None: ...

    @property
    def seqs(self) -> tuple[int, ...]: ...

    @property
    def what(self) -> str: ...


def finding_lines(found: Iterable[ReportedProblem]) -> Iterator[str]:
    """Yield one line per problem."""
    for each in found:
        seqs = [*map(str, each.seqs[:_SEQS]), *(["…"] if len(each.seqs) > _SEQS else [])]
        checkpoints = f"checkpoint{'' if len(each.seqs) == 1 else 's'} {', '.join(seqs)}" if seqs else ""
        thread = "" if each.thread is None else f"thread {each.thread!a}"
        place = ", ".join(filter(None, (thread, checkpoints)))
        yield f"{place}{': ' if place else ''}{line(each.what)}"


def finding_data(found: Iterable[ReportedProblem]) -> list[dict[str, Any]]:
    """Return problems as JSON data."""
    return [fields(each, "thread seqs what") for each in found]


# -- messages and values -----------------------------------------------------------------------------------------------


def json_line(value: Any) -> str:
    """Return a value as one line of JSON that is safe to print."""
    return line(json.dumps(inspect.data_of(value), ensure_ascii=False))


def call_text(name: str, arguments: Any) -> str:
    """Return a call as it is written in a program: `pay(invoice="A-17", amount=3)`."""
    if type(arguments) is dict and all(type(key) is str and key.isidentifier() for key in arguments):
        given = ", ".join(f"{line(key)}={json_line(value)}" for key, value in arguments.items())
    else:
        given = "" if arguments is None else json_line(arguments)
    return f"{line(name)}({given})"


def chat_lines(chat: inspect.Chat) -> Iterator[str | Text]:
    """Yield each message under its role, with tool calls and their results."""
    if chat.start:
        yield styled(f"… {counted(chat.start, 'earlier message')}; --last 0 shows all", "dim")
    for message in chat.messages:
        yield from _message(message)


def _message(message: inspect.ChatMessage) -> Iterator[str | Text]:
    name = "" if message.name is None else f" {line(message.name)}"
    role = line(message.role) or "message"
    yield styled(f"[{message.index}] {role}{name}", _ROLES.get(message.role, "bold"))
    for part in message.parts:
        style = "dim" if part.kind == "thought" else None
        yield from (styled(each, style) for each in _part(part, "    "))
    for call in message.calls:
        yield from _tool_call(call)
    yield ""


def _part(part: inspect.Part, indent: str) -> list[str]:
    if part.kind == "data":
        return _wrapped(json_line(part.data), indent)
    return _wrapped(part.text, f"{indent}(thinks) " if part.kind == "thought" else indent)


def _tool_call(call: inspect.ToolCall) -> Iterator[str | Text]:
    shown = call_text(call.name, call.arguments)
    yield joined([styled("  > ", "cyan"), shortened(shown, max(_width() - 4, 20))], "")
    if call.result is None:
        status = call.status or "no result"
        yield styled(f"  < {line(status)}", "yellow" if status == "in doubt" else "dim")
        return
    mark = "  < error: " if call.is_error else "  < "
    first, *others = [each for part in call.result for each in _part(part, "")] or [""]
    yield joined([styled(mark, "red" if call.is_error else "cyan"), first], "")
    yield from (f"    {each}" for each in others)


def _wrapped(text: str, indent: str) -> list[str]:
    width = max(_width() - len(indent), 20)
    shown: list[str] = []
    for each in lines(text[:_LONGEST]):
        shown += textwrap.wrap(each, width, drop_whitespace=False, replace_whitespace=False) or [""]
    if len(text) > _LONGEST:
        shown.append(f"… {len(text) - _LONGEST} more characters")
    blank = " " * len(indent)
    return [f"{indent if at == 0 else blank}{each}".rstrip() for at, each in enumerate(shown)]


def tree_lines(value: Any, *, depth: int, most: int = 100) -> Iterator[str | Text]:
    """Yield a value as a tree, at most `depth` levels deep and `most` items per level."""
    yield from _node(value, inspect.node_of(value), "", depth, most)


def _node(value: Any, node: inspect.Node, indent: str, depth: int, most: int) -> Iterator[str | Text]:
    key: list[str | Text] = [indent, styled(line(node.key), "cyan"), ": " if node.key else ""]
    if node.kind not in _CONTAINERS:
        text = f'"{line(node.text)}"' if node.kind == "text" else line(node.text)
        more = f" … {node.count} in all" if node.is_cut else ""
        room = max(_width() - len(indent) - len(node.key) - 2 - len(more), 20)
        yield joined([*key, shortened(text, room), more], "")
        return
    marks = {"dict": "{}", "list": "[]", "tuple": "()"}.get(node.kind, node.kind)
    count = "" if not node.count else f" {node.count}"
    yield joined([*key, styled(f"{marks}{count}", "dim")], "")
    if depth <= 0:
        return
    page = inspect.nodes_in(value, limit=most)
    for inside in page.nodes:
        yield from _node(inspect.value_at(value, inside.at), inside, f"{indent}  ", depth - 1, most)
    if page.total > len(page.nodes):
        yield f"{indent}  … {page.total - len(page.nodes)} more"


def _width() -> int:
    return min(columns(), _WIDEST)


def fitted(prefix: str | Text, text: str | Text) -> Text:
    """Return a line after its prefix, cut to the terminal."""
    whole = joined([prefix, text], " ")
    whole.rstrip()
    return cut(whole, columns())
