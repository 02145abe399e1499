"""The contents of a transcript, before rendering as Markdown or HTML: facts, messages and open calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.exporters.beside import system_pieces
from holdfast.exporters.gathering import Gatherer, Told
from holdfast.exporters.media import Media, media_of
from holdfast.exporters.target import Exported, Target, put_all, written_to
from holdfast.handle import Holdfast
from holdfast.inspect import Chat, ChatMessage, Part, ToolCall, chat_of, data_of, parts_of
from holdfast.redaction import Redaction
from holdfast.text import shortened
from holdfast.types import Effect, Problem, Usage

IN_DOUBT: Final = "in doubt"
DOUBT_TOLD: Final = "in doubt: it may or may not have happened"
NO_RESULT: Final = "no result in this state"
ROLES: Final = ("user", "assistant", "system", "developer", "tool")
_NO_CALLS: Final = ("answer", "cancel", "turn", "undo", "write")
_LONGEST: Final = 1_000  # characters of a text shown in one line
_STEP: Final = 1_000


class Stored(str):
    """A text from the store, shown as a quotation."""

    __slots__ = ()


class Fact(NamedTuple):
    """A line about the checkpoint: a name, and words of which some are from the store."""

    name: str
    words: tuple[str | Stored, ...]


class Shown(NamedTuple):
    """A text, possibly of several lines, and whether it is JSON."""

    text: str
    is_json: bool = False


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call made after the last checkpoint. `blocks` are its arguments, result and error, with their names."""

    name: str
    kind: str
    status: str
    begun_at: datetime
    blocks: tuple[tuple[str, Shown], ...]


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The contents. `instructions` are those outside the messages; `state` is set if the state has no messages."""

    thread: str
    step: int
    facts: tuple[Fact, ...]
    instructions: tuple[Shown, ...]
    messages: tuple[ChatMessage, ...]
    state: Shown | None
    open_calls: tuple[OpenCall, ...]
    branches: tuple[str, ...]
    lost: tuple[Stored, ...]


Render = Callable[[Transcript], Iterable[str]]


def transcribe(
    hf: Holdfast, target: Target, reference: str, redact: Callable[[str], str] | None, render: Render
) -> Exported:
    """Write what a reference names to a new file or an open one. Raises what `find` and `written_to` raise."""
    hf.context.check_open()
    gatherer = Gatherer(hf, Redaction(redact))
    conversation = gatherer.gather(reference)
    told = _transcript(conversation, *gatherer.kin(conversation))
    size = written_to(target, lambda write: put_all(write, render(told)))
    return Exported(
        threads=1,
        checkpoints=1,
        entries=len(told.open_calls),
        bytes=size,
        left_out=tuple(Problem(conversation.thread, (conversation.checkpoint.seq,), why) for why in conversation.lost),
    )


def _transcript(conversation: Told, origin: str | None, forks: tuple[str, ...]) -> Transcript:
    checkpoint = conversation.checkpoint
    chat: Chat | None = chat_of(checkpoint.state, journal=conversation.open_calls)
    return Transcript(
        thread=conversation.thread,
        step=checkpoint.step,
        facts=(*_facts(conversation), *_kin(origin, forks), *_spent(conversation)),
        instructions=() if chat is None else tuple(part_of(each) for each in parts_of(system_pieces(checkpoint.state))),
        messages=() if chat is None else chat.messages,
        state=json_of(checkpoint.state) if chat is None else None,
        open_calls=tuple(_open(each) for each in conversation.open_calls if each.effect not in _NO_CALLS),
        branches=tuple(_branches(conversation)),
        lost=tuple(Stored(each) for each in conversation.lost),
    )


# -- helpers for the renderers -----------------------------------------------------------------------------------------


def part_of(part: Part) -> Shown:
    """A part of a message as text: media are described in brackets, other data is written as JSON."""
    if part.kind != "data":
        return Shown(part.text)
    media = media_of(part.data)
    return json_of(part.data) if media is None else Shown(_named(media))


def json_of(value: Any) -> Shown:
    return Shown(json.dumps(data_of(value), ensure_ascii=False, indent=2), is_json=True)


def speaker(message: ChatMessage) -> tuple[str, str | None]:
    """The role and the name of a message's author. In a message with only a call, the name is the tool's: None."""
    is_call = not message.parts and any(call.name == message.name for call in message.calls)
    return message.role or "message", None if is_call else message.name


def outcome(call: ToolCall) -> str:
    """Describe a call that has no result."""
    if call.status == IN_DOUBT:
        return DOUBT_TOLD
    return NO_RESULT if call.status is None else f"{call.status.replace('_', ' ')}, {NO_RESULT}"


def cut(text: str) -> str:
    """A text in one line, shortened if long."""
    return shortened(text, _LONGEST)


def stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def size(count: int) -> str:
    """A number of bytes for people, such as "1.2 MB"."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < _STEP:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= _STEP
    return f"{amount:.1f} GB"


def _named(media: Media) -> str:
    words = [media.modality if media.modality != "unknown" else "file"]
    words += [media.mime_type] if media.mime_type else []
    words += [size(media.size)] if media.size is not None else []
    words += [each for each in (media.uri, media.file_id) if each]
    return f"[{', '.join(words)}]"


# -- facts -------------------------------------------------------------------------------------------------------------


def _facts(told: Told) -> Iterator[Fact]:
    checkpoint = told.checkpoint
    if told.agent is not None:
        yield Fact("Agent", (Stored(told.agent),))
    reason = None if told.reason is None else told.reason.removeprefix(f"{told.standing}: ")
    yield Fact("Status", (told.standing,) if reason is None else (f"{told.standing}: ", Stored(reason)))
    head = ", the head" if told.is_head else ""
    yield Fact("Checkpoint", (f"step {checkpoint.step}, number {checkpoint.seq}{head}, ", Stored(checkpoint.id)))
    if told.begun_at is not None:
        yield Fact("Started", (stamp(told.begun_at),))
    yield Fact("Saved", (stamp(checkpoint.created_at),))
    if checkpoint.label is not None:
        yield Fact("Label", (Stored(checkpoint.label),))
    if checkpoint.tags:
        yield Fact("Tags", tuple(_separated(checkpoint.tags)))
    if len(told.branches) > 1:
        yield Fact("Branch", (f"{told.branch} of {len(told.branches)}",))


def _kin(origin: str | None, forks: tuple[str, ...]) -> Iterator[Fact]:
    if origin is not None:
        yield Fact("Forked from", (Stored(origin),))
    if forks:
        yield Fact("Forks", tuple(_separated(forks)))


def _spent(told: Told) -> Iterator[Fact]:
    if told.model_calls:
        yield Fact("Model calls", (f"{told.model_calls:,}",))
    if told.usage is not None:
        yield Fact("Usage", (_usage(told.usage),))


def _separated(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number:
            yield ", "
        yield Stored(text)


def _usage(usage: Usage) -> str:
    total = usage.total or usage.input + usage.output
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    spent = f"{total:,} tokens: {usage.input:,} in{cached}, {usage.output:,} out"
    if not usage.input and not usage.output:
        spent = f"{total:,} tokens"
    if not usage.cost:
        return spent
    amount = f"{usage.cost:,.2f}" if usage.cost >= 1 else f"{usage.cost:.4f}"
    return f"{spent}; {f'${amount}' if usage.currency == 'USD' else f'{amount} {usage.currency}'}"


def _branches(told: Told) -> Iterator[str]:
    if len(told.branches) < 2:
        return
    for branch in told.branches:
        several = f"checkpoints {branch.first} to {branch.last}"
        words = f"checkpoint {branch.first}" if branch.first == branch.last else several
        origin = f", from checkpoint {branch.parent}" if branch.parent else ""
        leads = "leads here" if branch.leads else "does not lead here"
        yield f"Branch {branch.number}: {words}{origin}, {'this one' if branch.number == told.branch else leads}"


def _open(effect: Effect) -> OpenCall:
    blocks: list[tuple[str, Shown]] = []
    if effect.arguments is not None:
        blocks.append(("Arguments", json_of(effect.arguments)))
    if effect.result is not None:
        is_text = type(effect.result) is str
        blocks.append(("Result", Shown(effect.result) if is_text else json_of(effect.result)))
    if effect.error is not None:
        blocks.append(("Error", Shown(effect.error)))
    status = effect.status.replace("_", " ")
    return OpenCall(name=effect.name, kind=effect.effect, status=status, begun_at=effect.begun_at, blocks=tuple(blocks))
