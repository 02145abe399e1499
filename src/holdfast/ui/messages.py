"""The Messages tab: the messages of a step as a chat, tool calls with their results."""

from __future__ import annotations

from typing import Final

from holdfast.looking.chat import Chat, ChatMessage, Part, ToolCall, chat_of
from holdfast.looking.timeline import Step
from holdfast.ui import effects
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.seen import Seen, data
from holdfast.ui.values import long_text
from holdfast.ui.view import View
from holdfast.ui.words import chip, count

_MESSAGES: Final = 60


def messages_view(seen: Seen) -> Html:
    """Return a page of messages, by default the newest, and the calls made after the checkpoint."""
    view, step, state = seen
    start = view.number("from", -_MESSAGES, -(2**53), 2**53)
    journal = effects.recent(view, step, {}) if step.is_head else []
    chat = chat_of(state, start=start, limit=_MESSAGES, journal=journal)
    if chat is None:
        said = "This state has no messages. See the State tab."
        return joined(tag("p", said, class_="dim"), _since(seen))
    messages = [_message(each) for each in chat.messages]
    return joined(_pager(view, step, chat), messages, _pager(view, step, chat), _since(seen))


def _since(seen: Seen) -> Html | None:
    """Return the calls made after the head; its messages do not contain them yet."""
    later = effects.calls_since(seen.view, seen.step, {})
    if not later:
        return None
    return joined(tag("h2", "Calls after this checkpoint"), effects.shown(seen.view, seen.step, later))


def _pager(view: View, step: Step, chat: Chat) -> Html | None:
    if chat.total <= _MESSAGES:
        return None
    end = min(chat.start + _MESSAGES, chat.total)
    at = {"thread": step.checkpoint.thread, "id": step.checkpoint.id, "view": "messages"}
    older = tag("a", "older", href=view.url("/step", **at, **{"from": max(chat.start - _MESSAGES, 0)}))
    newer = tag("a", "newer", href=view.url("/step", **at, **{"from": end}))
    return tag(
        "nav",
        f"messages {chat.start + 1} to {end} of {count(chat.total)} ",
        older if chat.start else None,
        " ",
        newer if end < chat.total else None,
        class_="pages",
        aria_label="Messages",
    )


def _message(message: ChatMessage) -> Html:
    role = message.role if message.role in ("user", "assistant", "system", "tool") else "other"
    who = line(message.role) + (f" · {line(message.name)}" if message.name else "")
    return tag(
        "article",
        tag("header", tag("b", who), tag("span", f"#{message.index}", class_="dim")),
        [_part(part) for part in message.parts],
        [_call(call) for call in message.calls],
        class_=f"message {role}",
    )


def _part(part: Part) -> Html:
    if part.kind == "text":
        return tag("div", long_text(part.text), class_="said", dir="auto")
    if part.kind == "thought":
        return tag("details", tag("summary", "thought"), tag("div", long_text(part.text), class_="said", dir="auto"))
    return tag("pre", data(part.data), class_="data")


def _call(call: ToolCall) -> Html:
    is_doubtful = call.status in ("in doubt", "unstored")
    if call.result is not None:
        came: Child = [_part(part) for part in call.result] or tag("span", "nothing", class_="dim")
    elif call.status:
        came = chip(call.status)
    else:
        came = tag("span", "no result in this state", class_="dim")
    tone = " doubt" if is_doubtful else " failed" if call.is_error else ""
    return tag(
        "div",
        tag("div", tag("b", line(call.name)), tag("pre", data(call.arguments), class_="data"), class_="asked"),
        tag("div", tag("span", "result ", class_="dim"), came, class_="came"),
        class_=f"call{tone}",
    )
