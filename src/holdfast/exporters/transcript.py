"""Export a thread as a transcript, in Markdown or as an HTML page, from a template for each.

Texts of the store are never interpreted. In HTML every text is escaped. In Markdown every text is a code span or in a
fence that it cannot close; `finalize` sees to it that no text of the store is written in another way.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from holdfast.errors import NotInstalled
from holdfast.exporters.excerpt import Excerpt, ExcerptReader
from holdfast.exporters.message_parts import media_of, system_pieces
from holdfast.exporters.target import Exported, Target, put_all, written_to
from holdfast.handle import Holdfast
from holdfast.inspect import ChatMessage, Part, RecordedCall, ToolCall, chat_of, data_of, parts_of
from holdfast.text import block, money, shortened, sized, stamp
from holdfast.types import Problem, Usage

if TYPE_CHECKING:
    from jinja2 import Environment

DOUBT: Final = "in doubt: it may or may not have happened"
_IN_DOUBT: Final = "in doubt"
_ROLES: Final = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system", "tool": "tool"}
_LONGEST: Final = 1_000  # characters of a text shown in one line
# Characters and lines above which HTML folds a text. Messages may be long: reading them is what a transcript is for.
_FOLDED: Final = {"text": (20_000, 400), "data": (4_000, 60)}
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
    return _export(hf, target, reference, redact, "markdown")


def export_html(
    hf: Holdfast, target: Target, reference: str, *, redact: Callable[[str], str] | None = None
) -> Exported:
    """Write a transcript of a thread as an HTML page, to a new file or an open one.

    It is one file without scripts or external resources. See `export_markdown` for the arguments and errors.
    """
    return _export(hf, target, reference, redact, "html")


def _export(
    hf: Holdfast, target: Target, reference: str, redact: Callable[[str], str] | None, form: Literal["markdown", "html"]
) -> Exported:
    template = environments()[form].get_template(f"transcript.{form}.jinja")
    reader = ExcerptReader(hf, redact)
    excerpt = reader.read(reference)
    chat = chat_of(excerpt.checkpoint.state, journal=excerpt.effects, is_held=excerpt.is_held)
    outside = parts_of(system_pieces(excerpt.checkpoint.state))
    data = {
        "thread": StoredText(excerpt.thread),
        "step": excerpt.checkpoint.step,
        "facts": [*_facts(excerpt), *_kin(*reader.kin(excerpt)), *_spent(excerpt)],
        "lost": [StoredText(each) for each in excerpt.lost],
        "instructions": [] if chat is None else [_shown(part) for part in outside],
        "state": _json(excerpt.checkpoint.state) if chat is None else None,
        "messages": [] if chat is None else [_message(each) for each in chat.messages],
        "open_calls": [_open_call(each) for each in excerpt.open_calls],
        "branches": list(_branches(excerpt)),
    }
    size = written_to(target, lambda write: put_all(write, template.generate(data)))
    seqs = (excerpt.checkpoint.seq,)
    return Exported(
        threads=1,
        checkpoints=1,
        entries=len(excerpt.open_calls),
        bytes=size,
        left_out=tuple(Problem(excerpt.thread, seqs, why) for why in excerpt.lost),
    )


# -- what the templates show -------------------------------------------------------------------------------------------


class StoredText(str):
    """A text from the store. The templates show it as a quotation."""

    __slots__ = ()


class Shown(NamedTuple):
    """A text, possibly of several lines. `kind` is "text", "thought" or "data"; `is_json` is whether it is JSON."""

    text: StoredText
    kind: str = "data"
    is_json: bool = False

    @property
    def fold(self) -> str | None:
        """The size of the text if it is folded."""
        lines = self.text.count("\n") + 1
        most = _FOLDED["data" if self.kind == "data" else "text"]
        if len(self.text) <= most[0] and lines <= most[1]:
            return None
        return f"{len(self.text):,} characters" + (f", {lines:,} lines" if lines > 1 else "")


def _shown(part: Part) -> Shown:
    """A part of a message as text: media are described in brackets, other data is written as JSON."""
    if part.kind != "data":
        return Shown(StoredText(part.text), part.kind)
    media = media_of(part.data)
    if media is None:
        return _json(part.data)
    words = [media.modality if media.modality != "unknown" else "file", media.mime_type]
    words += [None if media.size is None else sized(media.size), media.uri, media.file_id]
    return Shown(StoredText(f"[{', '.join(each for each in words if each)}]"))


def _result(part: Part) -> Shown:
    shown = _shown(part)
    return shown if shown.kind == "thought" else shown._replace(kind="data")


def _json(value: Any) -> Shown:
    return Shown(StoredText(json.dumps(data_of(value), ensure_ascii=False, indent=2)), is_json=True)


def _message(message: ChatMessage) -> dict[str, Any]:
    # In a message with only a call, the name is the tool's.
    is_call = not message.parts and any(call.name == message.name for call in message.calls)
    role = message.role or "message"
    return {
        "index": message.index,
        "role": role if role in (*_ROLES, "message") else StoredText(role),
        "tone": _ROLES.get(role, "other"),
        "name": None if is_call or message.name is None else StoredText(message.name),
        "parts": [_shown(part) for part in message.parts],
        "calls": [_call(call) for call in message.calls],
    }


def _call(call: ToolCall) -> dict[str, Any]:
    is_doubtful = call.result is None and call.status == _IN_DOUBT
    missing = "no result in this state"
    outcome = DOUBT if is_doubtful else missing if call.status is None else f"{_plain(call.status)}, {missing}"
    return {
        "name": StoredText(call.name),
        "id": None if call.id is None else StoredText(call.id),
        "arguments": None if call.arguments is None else _shown(Part(kind="data", data=call.arguments)),
        "result": None if call.result is None else [_result(part) for part in call.result],
        "outcome": outcome,
        "is_error": call.is_error,
        "is_doubtful": is_doubtful,
    }


def _open_call(call: RecordedCall) -> dict[str, Any]:
    effect = call.effect
    blocks: list[tuple[str, Shown]] = []
    if effect.arguments is not None:
        blocks.append(("Arguments", _json(effect.arguments)))
    if effect.result is not None:
        is_text = type(effect.result) is str
        blocks.append(("Result", Shown(StoredText(effect.result)) if is_text else _json(effect.result)))
    if effect.error is not None:
        blocks.append(("Error", Shown(StoredText(effect.error))))
    is_doubtful = call.status == _IN_DOUBT
    status = DOUBT if is_doubtful else _plain(call.status)
    return {
        "name": StoredText(effect.name),
        "kind": _plain(effect.effect),
        "status": status,
        "is_doubtful": is_doubtful,
        "started_at": effect.started_at,
        "blocks": blocks,
    }


def _plain(word: str) -> str:
    """A word of a journal entry without special characters: a forged one may have any."""
    return re.sub(r"[^\w ,:]", "", word)


class Fact(NamedTuple):
    """A line about the checkpoint: a name, and words of which some are from the store."""

    name: str
    words: tuple[str | StoredText, ...]


def _facts(excerpt: Excerpt) -> Iterator[Fact]:
    checkpoint, status = excerpt.checkpoint, excerpt.status
    if excerpt.agent is not None:
        yield Fact("Agent", (StoredText(excerpt.agent),))
    reason = None if excerpt.reason is None else excerpt.reason.removeprefix(f"{status}: ")
    yield Fact("Status", (_plain(status),) if reason is None else (f"{_plain(status)}: ", StoredText(reason)))
    head = ", the head" if excerpt.is_head else ""
    yield Fact("Checkpoint", (f"step {checkpoint.step}, number {checkpoint.seq}{head}, ", StoredText(checkpoint.id)))
    if excerpt.started_at is not None:
        yield Fact("Started", (stamp(excerpt.started_at),))
    yield Fact("Saved", (stamp(checkpoint.created_at),))
    if checkpoint.label is not None:
        yield Fact("Label", (StoredText(checkpoint.label),))
    if checkpoint.tags:
        yield Fact("Tags", _separated(checkpoint.tags))
    if len(excerpt.branches) > 1:
        yield Fact("Branch", (f"{excerpt.branch} of {len(excerpt.branches)}",))


def _kin(origin: str | None, forks: tuple[str, ...]) -> Iterator[Fact]:
    if origin is not None:
        yield Fact("Forked from", (StoredText(origin),))
    if forks:
        yield Fact("Forks", _separated(forks))


def _spent(excerpt: Excerpt) -> Iterator[Fact]:
    if excerpt.model_calls:
        yield Fact("Model calls", (f"{excerpt.model_calls:,}",))
    if excerpt.usage is not None:
        yield Fact("Usage", (_usage(excerpt.usage),))


def _separated(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for text in texts for word in (", ", StoredText(text)))[1:]


def _usage(usage: Usage) -> str:
    total = usage.total or usage.input + usage.output
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    details = f": {usage.input:,} in{cached}, {usage.output:,} out" if usage.input or usage.output else ""
    cost = f"; {_plain_money(usage)}" if usage.cost else ""
    return f"{total:,} tokens{details}{cost}"


def _plain_money(usage: Usage) -> str:
    return re.sub(r"[^\w $.,]", "", money(usage.cost, usage.currency))


def _branches(excerpt: Excerpt) -> Iterator[str]:
    for number, (branch, is_leading) in enumerate(excerpt.branches if len(excerpt.branches) > 1 else (), 1):
        several = f"checkpoints {branch.first} to {branch.last}"
        words = f"checkpoint {branch.first}" if branch.first == branch.last else several
        origin = f", from checkpoint {branch.parent}" if branch.parent else ""
        leads = "leads here" if is_leading else "does not lead here"
        yield f"Branch {number}: {words}{origin}, {'this one' if number == excerpt.branch else leads}"


# -- the templates ----------------------------------------------------------------------------------------------------


@cache
def environments() -> dict[str, Environment]:
    """The environment of each template. NotInstalled if Jinja2 is missing."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - slow, and only transcripts need it
        from markupsafe import Markup  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise NotInstalled("transcripts need jinja2; nothing was written. Run pip install jinja2.") from error
    loader = PackageLoader("holdfast.exporters")

    def spelled(value: Any) -> Any:
        return value if not isinstance(value, str) or isinstance(value, Markup) else block(value)

    def quoted(value: Any) -> Any:
        return _code(value) if isinstance(value, StoredText) else value

    same: dict[str, Any] = {"loader": loader, "undefined": StrictUndefined, "keep_trailing_newline": True}
    same |= {"trim_blocks": True, "lstrip_blocks": True}
    page = Environment(**same, autoescape=True, finalize=spelled)
    page.filters |= {"line": _line, "text": _text, "stamp": stamp}
    page.tests["stored"] = lambda value: isinstance(value, StoredText)
    style = loader.get_source(page, "transcript.css")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    own: dict[str, Any] = {"style": Markup(style), "digest": digest}  # noqa: S704 - a file of this package
    page.globals.update(own)
    plain = Environment(**same, autoescape=False, finalize=quoted)  # noqa: S701 - Markdown; see `quoted`
    plain.filters |= {"fenced": _fenced, "stamp": stamp}
    return {"html": page, "markdown": plain}


def _line(text: str) -> str:
    """A text in one line, shortened if long."""
    return shortened(text, _LONGEST)


def _text(shown: Shown) -> str:
    return block(shown.text.replace("\r\n", "\n"))


def _code(text: str) -> str:
    """A text in one line as a code span, with more backticks around it than it contains in a row."""
    shown = _line(text)
    if not shown.strip():
        return f'"{shown}"'
    ticks = "`" * (max(map(len, _TICKS.findall(shown)), default=0) + 1)
    is_padded = "`" in (shown[0], shown[-1]) or (shown[0] == " " and shown[-1] == " ")
    return f"{ticks} {shown} {ticks}" if is_padded else f"{ticks}{shown}{ticks}"


def _fenced(shown: Shown) -> str:
    """A text in a fence that is longer than any row of backticks in it."""
    text = _text(shown)
    fence = "`" * max(max(map(len, _TICKS.findall(text)), default=0) + 1, _FENCE)
    return f"{fence}{'json' if shown.is_json else 'text'}\n{text}\n{fence}"
