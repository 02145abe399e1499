"""Export a thread as an HTML transcript: one file without scripts or external resources."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from html import escape
from typing import Final

from holdfast.exporters.html_style import STYLE
from holdfast.exporters.target import Exported, Target
from holdfast.exporters.transcript import (
    DOUBT_TOLD,
    IN_DOUBT,
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

# Characters and lines above which a text is folded. Messages may be long: reading them is what a transcript is for.
_SAID: Final = (20_000, 400)
_GIVEN: Final = (4_000, 60)
_CLASSES: Final = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system", "tool": "tool"}


def export_html(
    hf: Holdfast, target: Target, reference: str, *, redact: Callable[[str], str] | None = None
) -> Exported:
    """Write a transcript of a thread as an HTML page, to a new file or an open one.

    `reference` names a thread, for its head, or a checkpoint ("notes@12"). `redact` is called with every text except
    names and returns the text to write. NotFound if there is no such thread or checkpoint, InvalidArgument if the file
    exists. Parts of the state that cannot be read are marked in the page and listed in the result.
    """
    return transcribe(hf, target, reference, redact, html)


def html(told: Transcript) -> Iterator[str]:
    """Render a transcript as HTML, piece by piece."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
    yield f"<title>{_line(told.thread)}, step {told.step}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    yield f'<h1 dir="auto">{_line(told.thread)}</h1>\n<dl class="facts">\n'
    for fact in told.facts:
        yield f"<div><dt>{fact.name}</dt><dd>{''.join(_word(each) for each in fact.words)}</dd></div>\n"
    yield "</dl>\n"
    if told.lost:
        yield '<section class="lost" aria-labelledby="lost"><h2 id="lost">Unreadable parts</h2>\n<ul>\n'
        yield from (f"<li>{_line(each)}</li>\n" for each in told.lost)
        yield "</ul></section>\n"
    if told.instructions:
        yield '<section aria-labelledby="instructions"><h2 id="instructions">Instructions</h2>\n'
        yield '<div class="message system">\n'
        yield from map(_said, told.instructions)
        yield "</div></section>\n"
    if told.state is not None:
        yield '<section aria-labelledby="state"><h2 id="state">State</h2>\n<p>The state contains no messages.</p>\n'
        yield f"{_pre(told.state)}</section>\n"
    else:
        yield '<section aria-labelledby="messages"><h2 id="messages">Messages</h2>\n'
        for message in told.messages:
            yield from _message(message)
        yield "</section>\n"
    if told.open_calls:
        yield '<section aria-labelledby="open"><h2 id="open">Open calls</h2>\n'
        yield "<p>These calls were made after the last checkpoint.</p>\n"
        for call in told.open_calls:
            yield from _open_call(call)
        yield "</section>\n"
    if told.branches:
        yield '<section aria-labelledby="branches"><h2 id="branches">Branches</h2>\n<ul>\n'
        yield from (f"<li>{escape(each)}</li>\n" for each in told.branches)
        yield "</ul></section>\n"
    yield "</main>\n</body>\n</html>\n"


def _message(message: ChatMessage) -> Iterator[str]:
    role, name = speaker(message)
    id = f"m{message.index}"
    yield f'<article class="message {_CLASSES.get(role, "other")}" aria-labelledby="{id}">\n'
    of = "" if name is None else f' <span class="name" dir="auto">{_line(name)}</span>'
    yield f'<h3 id="{id}">{_line(role)}{of} <span class="dim">{message.index}</span></h3>\n'
    for part in message.parts:
        yield _part(part)
    for call in message.calls:
        yield from _call(call)
    yield "</article>\n"


def _part(part: Part) -> str:
    shown = part_of(part)
    if part.kind == "thought":
        return f"<details><summary>Thought</summary>{_said(shown)}</details>\n"
    return _said(shown) if part.kind == "text" else _pre(shown)


def _call(call: ToolCall) -> Iterator[str]:
    is_doubtful = call.result is None and call.status == IN_DOUBT
    tone = " doubt" if is_doubtful else " failed" if call.is_error else ""
    id = "" if call.id is None else f' <code class="dim">{_line(call.id)}</code>'
    yield f'<div class="call{tone}">\n<div><h4>Call <code>{_line(call.name)}</code>{id}</h4>\n'
    if call.arguments is not None:
        yield _pre(part_of(Part(kind="data", data=call.arguments)))
    yield "</div>\n<div>"
    if call.result is None:
        told = escape(outcome(call))
        yield f'<h4>Result</h4>\n<p class="outcome">{f"<strong>{told}</strong>" if is_doubtful else told}</p>\n'
    else:
        yield f"<h4>{'Result (error)' if call.is_error else 'Result'}</h4>\n"
        yield from (_pre(part_of(part)) for part in call.result)
    yield "</div>\n</div>\n"


def _open_call(call: OpenCall) -> Iterator[str]:
    is_doubtful = call.status == IN_DOUBT
    told = f"<strong>{escape(DOUBT_TOLD)}</strong>" if is_doubtful else escape(call.status)
    yield f'<div class="call open{" doubt" if is_doubtful else ""}">\n<h3><code>{_line(call.name)}</code></h3>\n'
    yield f'<p>{escape(call.kind)}, {told}, started <time datetime="{call.begun_at.isoformat()}">'
    yield f"{stamp(call.begun_at)}</time></p>\n"
    for name, shown in call.blocks:
        yield f"<h4>{name}</h4>\n{_pre(shown)}"
    yield "</div>\n"


def _said(shown: Shown) -> str:
    return _folding(shown, _SAID, f'<div class="text" dir="auto">{_text(shown)}</div>')


def _pre(shown: Shown) -> str:
    return _folding(shown, _GIVEN, f"<pre>\n{_text(shown)}</pre>")


def _folding(shown: Shown, most: tuple[int, int], whole: str) -> str:
    """Fold a long text, so that it opens on a click. Nothing is left out."""
    lines = shown.text.count("\n") + 1
    if len(shown.text) <= most[0] and lines <= most[1]:
        return f"{whole}\n"
    about = f"{len(shown.text):,} characters" + (f", {lines:,} lines" if lines > 1 else "")
    return f"<details><summary>{about}</summary>{whole}</details>\n"


def _word(word: str) -> str:
    return f'<code dir="auto">{_line(word)}</code>' if isinstance(word, Stored) else escape(word)


def _line(text: str) -> str:
    return escape(cut(text))


def _text(shown: Shown) -> str:
    return escape(block(shown.text.replace("\r\n", "\n")))
