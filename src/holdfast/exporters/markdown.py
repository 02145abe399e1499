"""Export a thread as a Markdown transcript. Message texts are in code fences that they cannot close."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.exporters.target import Exported, Target
from holdfast.exporters.transcript import (
    DOUBT_TOLD,
    IN_DOUBT,
    ROLES,
    OpenCall,
    Shown,
    Stored,
    Transcript,
    cut,
    outcome,
    part_of,
    speaker,
    stamp,
    transcribe,
)
from holdfast.handle import Holdfast
from holdfast.inspect import ChatMessage, Part, ToolCall
from holdfast.text import block

_TICKS: Final = re.compile("`+")
_FENCE: Final = 3


def export_markdown(
    hf: Holdfast, target: Target, reference: str, *, redact: Callable[[str], str] | None = None
) -> Exported:
    """Write a transcript of a thread as Markdown, to a new file or an open one.

    `reference` names a thread, for its head, or a checkpoint ("notes@12"). `redact` is called with every text except
    names and returns the text to write. NotFound if there is no such thread or checkpoint, InvalidArgument if the file
    exists. Parts of the state that cannot be read are marked in the text and listed in the result.
    """
    return transcribe(hf, target, reference, redact, markdown)


def markdown(told: Transcript) -> Iterator[str]:
    """Render a transcript as Markdown, piece by piece."""
    yield f"# {_code(told.thread)}\n\n"
    for fact in told.facts:
        yield f"- {fact.name}: {''.join(_word(each) for each in fact.words)}\n"
    if told.lost:
        yield "\n## Unreadable parts\n\n"
        yield from (f"- {_code(each)}\n" for each in told.lost)
    if told.instructions:
        yield "\n## Instructions\n"
        yield from (f"\n{_fenced(each)}" for each in told.instructions)
    if told.state is not None:
        yield f"\n## State\n\nThe state contains no messages.\n\n{_fenced(told.state)}"
    else:
        yield "\n## Messages\n"
        for message in told.messages:
            yield from _message(message)
    if told.open_calls:
        yield "\n## Open calls\n\nThese calls were made after the last checkpoint.\n"
        for call in told.open_calls:
            yield from _open_call(call)
    if told.branches:
        yield "\n## Branches\n\n"
        yield from (f"- {each}\n" for each in told.branches)


def _message(message: ChatMessage) -> Iterator[str]:
    role, name = speaker(message)
    who = role if role in ROLES else _code(role)
    yield f"\n### {message.index}. {who}{'' if name is None else f' {_code(name)}'}\n"
    for part in message.parts:
        yield from _part(part)
    for call in message.calls:
        yield from _call(call)


def _part(part: Part) -> Iterator[str]:
    if part.kind == "thought":
        yield "\nThought:\n"
    yield f"\n{_fenced(part_of(part))}"


def _call(call: ToolCall) -> Iterator[str]:
    yield f"\n**Call** {_code(call.name)}{'' if call.id is None else f', {_code(call.id)}'}\n"
    if call.arguments is not None:
        yield f"\n{_fenced(part_of(Part(kind='data', data=call.arguments)))}"
    if call.result is None:
        told = outcome(call)
        yield f"\n**{told[0].upper()}{told[1:]}**\n" if call.status == IN_DOUBT else f"\n*{_escaped(told)}*\n"
        return
    yield "\n**Result (error)**\n" if call.is_error else "\n**Result**\n"
    for part in call.result:
        yield from _part(part)


def _open_call(call: OpenCall) -> Iterator[str]:
    status = f"**{DOUBT_TOLD}**" if call.status == IN_DOUBT else call.status
    yield f"\n### {_code(call.name)}\n\n{call.kind}, {status}, started {stamp(call.begun_at)}\n"
    for name, shown in call.blocks:
        yield f"\n{name}:\n\n{_fenced(shown)}"


def _word(word: str) -> str:
    return _code(word) if isinstance(word, Stored) else word


def _code(text: str) -> str:
    """A text in one line as a code span, with more backticks around it than it contains in a row."""
    shown = cut(text)
    if not shown.strip():
        return f'"{shown}"'
    ticks = "`" * (max(map(len, _TICKS.findall(shown)), default=0) + 1)
    is_padded = "`" in (shown[0], shown[-1]) or (shown[0] == " " and shown[-1] == " ")
    return f"{ticks} {shown} {ticks}" if is_padded else f"{ticks}{shown}{ticks}"


def _fenced(shown: Shown) -> str:
    text = block(shown.text.replace("\r\n", "\n"))
    fence = "`" * max(max(map(len, _TICKS.findall(text)), default=0) + 1, _FENCE)
    return f"{fence}{'json' if shown.is_json else 'text'}\n{text}\n{fence}\n"


def _escaped(text: str) -> str:
    """Remove special characters: the text contains the stored status of a journal entry."""
    return re.sub(r"[^\w ,:]", "", text)
