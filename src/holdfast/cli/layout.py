"""Threads, checkpoints, calls, messages and values as lines of text that are safe to print to a terminal."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast import inspect
from holdfast.cli.command import APP, APP_OR_GRAPH
from holdfast.cli.terminal import joined, shortened, styled, text_width, worded, wrapped
from holdfast.text import counted, line, span, stamp
from holdfast.types import Checkpoint

if TYPE_CHECKING:
    from rich.text import Text

_LONGEST: Final = 4000  # characters of one text; --raw shows all
_ROLES: Final = {"user": "blue", "assistant": "green", "system": "magenta", "tool": "cyan"}
_CONTAINERS: Final = ("dict", "list", "tuple", "set", "frozenset")
_SAVED: Final = "saved"
_SHORT: Final = 8
_SEQS: Final = 8  # checkpoints of a problem to list
_MEANINGS: Final = {
    "wait": ("",),
    "in doubt": ("it happened:      ", "it did not:       ", "stays unknown:    "),
    "approval": ("it has been done: ", "allow it:         ", "do not call it:   "),
}
STATUSES: Final = {
    # of runs
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
    # of calls and acts, besides those above
    "under way": "cyan",
    "unstored": "yellow",
    "cut off": "red",
    "late": "dim",
    "deleted": "yellow",
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


# -- checkpoints and calls ---------------------------------------------------------------------------------------------


def short_id(checkpoint: Checkpoint) -> str:
    """Return the last characters of a checkpoint's id, which are unique within its thread."""
    return checkpoint.id[-_SHORT:]


def call_line(call: inspect.Call, *, is_held: bool) -> str:
    """Return a call with its number, its duration, and its status unless it is done."""
    took = "" if call.seconds is None else f"  {span(call.seconds)}"
    status = inspect.call_status(call.kind, call.status, is_held=is_held)
    state = "" if status == "done" else f"  {status}"
    error = "" if call.error is None else f": {line(call.error)}"
    back = "  replayed" if call.replayed else ""
    return f"{call.number}  {call.kind}  {line(call.name)}{took}{state}{error}{back}"


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


# -- decisions ---------------------------------------------------------------------------------------------------------


def decision_lines(decision: inspect.Decision) -> Iterator[str]:
    """Yield what a person has to decide, with the commands to choose from."""
    if decision.about == "wait":
        payload = "" if decision.payload is None else f": {json_line(decision.payload)}"
        until = "" if decision.until is None else f", until {stamp(decision.until)}"
        yield from wrapped(f"asks {decision.node or decision.name}{payload}{until}", "  ")
    else:
        yield from wrapped(f"call {decision.effect}: {call_text(decision.name, decision.payload)}", "  ")
        if decision.error is not None:
            yield from wrapped(f"it raised {line(decision.error).rstrip(': ')}", "  ")
        yield from wrapped(decision.why, "  ")
    for meaning, command in zip(_MEANINGS[decision.about], decision.commands, strict=True):
        yield f"    {meaning}{line(command)}"


def explanations(decisions: Collection[inspect.Decision], *, has_resume: bool) -> Iterator[str]:
    """Yield what the capital words in the commands of decisions, and in those that resume a run, mean."""
    questions = [decision for decision in decisions if decision.about == "wait"]
    words = [*(["VALUE"] if questions else []), *(["RESULT"] if len(decisions) > len(questions) else [])]
    if words:
        yield f"{' and '.join(words)} in a command {'are' if len(words) > 1 else 'is'} JSON, like true or '\"text\"'"
    has_graph = any(question.node is not None for question in questions)
    if has_graph or has_resume:
        yield f"APP in a command {APP_OR_GRAPH if has_graph else APP}"


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


def _part(part: inspect.Part, indent: str = "") -> list[str]:
    text = json_line(part.data) if part.kind == "data" else part.text
    shown = wrapped(text[:_LONGEST], f"{indent}(thinks) " if part.kind == "thought" else indent)
    more = len(text) - _LONGEST
    return [*shown, f"{indent}… {more} more characters"] if more > 0 else shown


def _tool_call(call: inspect.ToolCall) -> Iterator[str | Text]:
    shown = call_text(call.name, call.arguments)
    yield joined([styled("  > ", "cyan"), shortened(shown, max(text_width() - 4, 20))], "")
    if call.result is None:
        status = call.status or "no result"
        yield styled(f"  < {line(status)}", "yellow" if status == "in doubt" else "dim")
        return
    mark = "  < error: " if call.is_error else "  < "
    first, *others = [each for part in call.result for each in _part(part)] or [""]
    yield joined([styled(mark, "red" if call.is_error else "cyan"), first], "")
    yield from (f"    {each}" for each in others)


def tree_lines(value: Any, *, depth: int, most: int = 100) -> Iterator[str | Text]:
    """Yield a value as a tree, at most `depth` levels deep and `most` items per level."""
    yield from _node(value, inspect.node_of(value), "", depth, most)


def _node(value: Any, node: inspect.Node, indent: str, depth: int, most: int) -> Iterator[str | Text]:
    key: list[str | Text] = [indent, styled(line(node.key), "cyan"), ": " if node.key else ""]
    if node.kind not in _CONTAINERS:
        text = f'"{line(node.text)}"' if node.kind == "text" else line(node.text)
        more = f" … {node.count} in all" if node.is_cut else ""
        room = max(text_width() - len(indent) - len(node.key) - 2 - len(more), 20)
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
