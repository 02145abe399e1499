"""A step: its messages, state, difference, effects, raw text, and what is known about its checkpoint."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from starlette.responses import Response

from holdfast.errors import Damaged, HoldfastError, NotFound
from holdfast.looking.calls import DOUBTFUL, effects
from holdfast.looking.chat import Chat, ChatMessage, Part, ToolCall, chat_of
from holdfast.looking.nearest import existing
from holdfast.looking.timeline import Step, step_of
from holdfast.looking.writing import seconds_to_write
from holdfast.records import Checkpoint, Effect
from holdfast.threads.diff import ABSENT, Change, diff
from holdfast.ui import acting
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.values import long_text, to_text, tree
from holdfast.ui.view import View
from holdfast.ui.words import chip, count, duration, money, plural, size

VIEWS: Final = ("messages", "state", "diff", "effects", "raw", "about")
_MESSAGES: Final = 60
_CHANGES_MOST: Final = 300
_RAW_MOST: Final = 300_000
_NO_CALLS: Final = ("answer", "cancel", "turn", "undo")


class Seen(NamedTuple):
    """What a view of a step is made of."""

    view: View
    step: Step
    state: Any


def step_page(view: View) -> Response:
    """One checkpoint, by its id or any other word that names it, seen as asked."""
    name, ref = view.asked("thread"), view.asked("id", "@-1")
    which = view.asked("view", "messages")
    which = which if which in VIEWS else "messages"
    checkpoint = view.hf.thread(name).load(ref, partial=True)
    if ref != checkpoint.id:
        # The address that is kept and shared names this checkpoint for good, not "the last one".
        kept = {each: view.asked(each) for each in ("view", "against", "from", "download")}
        there = view.url("/step", thread=name, id=checkpoint.id, **kept)
        return Response(status_code=303, headers={"Location": there})
    step = step_of(view.hf, checkpoint)
    state = view.site.redacted(checkpoint.state)
    if view.asked("download"):
        return _download(checkpoint, state)
    bodies = {"messages": _messages, "state": _state, "diff": _diff, "effects": _effects, "raw": _raw, "about": _about}
    tabs = tag(
        "nav",
        [
            tag(
                "a",
                each.capitalize(),
                href=view.step(name, checkpoint.id, each),
                aria_current="page" if each == which else None,
                data_tab=number,
            )
            for number, each in enumerate(VIEWS, 1)
        ],
        class_="tabs",
        aria_label="Views of this step",
    )
    return view.page(
        f"{name} step {checkpoint.step}",
        _top(view, step),
        acting.step_actions(view, step, state, is_whole=state is checkpoint.state and not checkpoint.lost),
        tabs,
        _lost(checkpoint),
        tag("section", bodies[which](Seen(view, step, state)), class_=f"view {which}", aria_label=which.capitalize()),
    )


def _top(view: View, step: Step) -> Html:
    checkpoint = step.checkpoint
    name = checkpoint.thread
    around = tag(
        "nav", _beside(view, checkpoint, -1), _beside(view, checkpoint, 1), class_="beside", aria_label="Steps"
    )
    labels = [tag("span", view.told(checkpoint.label), class_="label")] if checkpoint.label else []
    labels += [tag("span", view.told(each), class_="tag") for each in checkpoint.tags]
    crumbs = tag(
        "nav",
        tag("a", "Threads", href=view.url("/")),
        " / ",
        tag("a", line(name), href=view.thread(name), data_up=True),
        " / ",
        tag("b", f"step {checkpoint.step}"),
        class_="crumbs",
    )
    head = tag("b", "head", class_="headmark") if step.is_head else None
    gone = None if step.is_current else tag("span", "on a branch that was left", class_="mark crash")
    return joined(
        crumbs,
        tag(
            "div",
            tag("h1", f"Step {checkpoint.step}"),
            chip(checkpoint.status),
            head,
            gone,
            labels,
            around,
            class_="head",
        ),
    )


def _beside(view: View, checkpoint: Checkpoint, by: int) -> Html:
    said, key = ("← previous", "p") if by < 0 else ("next →", "n")
    try:
        seq = checkpoint.seq + by
        store = view.hf._session.store
        row = store.checkpoint(existing(view.hf, checkpoint.thread).position.thread, seq) if seq > 0 else None
    except Damaged:
        row = None
    if row is None or row.deleted:
        return tag("span", said, class_="dim")
    from holdfast.identity import to_text as id_text  # noqa: PLC0415 - named like what writes a state

    href = view.step(checkpoint.thread, id_text(row.id), view.asked("view") or None)
    return tag("a", said, href=href, data_key_press=key)


def _lost(checkpoint: Checkpoint) -> Html | None:
    if not checkpoint.lost:
        return None
    items = [tag("li", f"{line(each.path)}: {line(each.why)}") for each in checkpoint.lost[:20]]
    return tag("div", "Parts of this state cannot be read:", tag("ul", items), class_="bad", role="alert")


# -- messages ----------------------------------------------------------------------------------------------------------


def _journal(view: View, step: Step, *, is_after: bool) -> list[Effect]:
    """The calls of a step, or those made after its checkpoint, in full."""
    store = view.hf._session.store
    number = existing(view.hf, step.checkpoint.thread).position.thread
    if not is_after:
        wanted = [call.number for call in step.calls]
    else:
        last = store.last_effect(number)
        return effects(store, number, after=max(last - 60, 0)) if step.is_head else []
    if not wanted:
        return []
    found = effects(store, number, after=min(wanted) - 1, limit=max(wanted) - min(wanted) + 1)
    return [each for each in found if each.number in set(wanted)]


def _messages(seen: Seen) -> Html:
    view, step, state = seen
    start = view.number("from", -_MESSAGES, -(2**53), 2**53)
    journal = [] if not step.is_head else _journal(view, step, is_after=True)
    chat = chat_of(state, start=start, limit=_MESSAGES, journal=journal)
    if chat is None:
        said = "This state has no messages. Its State view shows what it has."
        return joined(tag("p", said, class_="dim"), _since(seen, journal))
    messages = [_message(each) for each in chat.messages]
    return joined(_pager(view, step, chat), messages, _pager(view, step, chat), _since(seen, journal))


def _since(seen: Seen, journal: list[Effect]) -> Html | None:
    """What was called since the head was written: no message tells of it yet."""
    later = [each for each in journal if each.step > seen.step.checkpoint.step and each.effect not in _NO_CALLS]
    if not later:
        return None
    return joined(tag("h2", "Called since this checkpoint"), [_effect(seen.view.site.redacted(each)) for each in later])


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
    return tag("pre", _data(part.data), class_="data")


def _data(value: Any) -> Html:
    try:
        return long_text(to_text(value))
    except HoldfastError:
        return long_text(repr(value))


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
        tag("div", tag("b", line(call.name)), tag("pre", _data(call.arguments), class_="data"), class_="asked"),
        tag("div", tag("span", "result ", class_="dim"), came, class_="came"),
        class_=f"call{tone}",
    )


# -- other views -------------------------------------------------------------------------------------------------------


def _state(seen: Seen) -> Html:
    return tree(seen.state)


def _diff(seen: Seen) -> Html:
    view, step, state = seen
    checkpoint = step.checkpoint
    against = view.asked("against") or checkpoint.parent or ""
    picker = tag(
        "form",
        tag("input", type="hidden", name="thread", value=checkpoint.thread),
        tag("input", type="hidden", name="id", value=checkpoint.id),
        tag("input", type="hidden", name="view", value="diff"),
        tag(
            "label",
            "Against ",
            tag("input", name="against", value=line(against), placeholder="@-2, @12, a label, an id", id="against"),
        ),
        tag("button", "Compare", type="submit"),
        method="get",
        action=view.url("/step"),
        class_="search",
    )
    if not against:
        return joined(picker, tag("p", "This is the first checkpoint. Pick another to compare with.", class_="dim"))
    other = _other(view, checkpoint, against)
    changes = diff(view.site.redacted(other.state), state).changes
    title = tag(
        "p",
        f"{plural(len(changes), 'change')} since ",
        tag("a", f"{line(other.thread)} step {other.step}", href=view.step(other.thread, other.id)),
    )
    rows = [_change(each) for each in changes[:_CHANGES_MOST]]
    more = tag("p", f"… {len(changes) - _CHANGES_MOST} more changes", class_="cut") if changes[_CHANGES_MOST:] else None
    return joined(picker, title, tag("ol", rows, class_="changes"), more)


def _other(view: View, checkpoint: Checkpoint, against: str) -> Checkpoint:
    """What is compared with: a checkpoint of this thread, else of the one it was forked from, or named in full."""
    try:
        return view.hf.thread(checkpoint.thread).load(against, partial=True)
    except NotFound:
        from holdfast.looking.references import find, state_of  # noqa: PLC0415 - rarely

        if "@" in against.lstrip("@"):
            return state_of(view.hf, find(view.hf, against))
        from holdfast.looking.timeline import timeline  # noqa: PLC0415 - rarely

        origin, _, id = (timeline(view.hf, checkpoint.thread, limit=0).forked_from or "").rpartition("@")
        if not origin or id != against:
            raise
        return view.hf.thread(origin).load(id, partial=True)


def _change(change: Change) -> Html:
    before = None if change.before is ABSENT else tag("pre", _data(change.before), class_="before", dir="auto")
    after = None if change.after is ABSENT else tag("pre", _data(change.after), class_="after", dir="auto")
    sign = {"added": "+", "removed": "-", "changed": "±"}[change.kind]
    path = tag("code", line(change.path[:300]))
    return tag("li", tag("b", sign, aria_label=change.kind), path, before, after, class_=change.kind)


def _effects(seen: Seen) -> Html:
    view, step = seen.view, seen.step
    journal = [*_journal(view, step, is_after=False)]
    if step.is_head:
        known = {each.number for each in journal}
        later = _journal(view, step, is_after=True)
        journal += [each for each in later if each.number not in known and each.step > step.checkpoint.step]
    if not journal:
        return tag("p", "No calls are recorded for this step.", class_="dim")
    return joined(_effect(view.site.redacted(each)) for each in journal)


def _effect(effect: Effect) -> Html:
    took = "" if effect.ended_at is None else duration((effect.ended_at - effect.begun_at).total_seconds())
    is_doubtful = effect.status in DOUBTFUL
    facts = [chip(effect.status.replace("_", " ")), tag("span", effect.effect), tag("span", took)]
    facts += [tag("span", f"by {line(effect.by)}")] if effect.by else []
    return tag(
        "article",
        tag("header", tag("b", line(effect.name)), tag("span", f"call {effect.number}", class_="dim"), facts),
        tag("p", line(effect.error), class_="bad") if effect.error else None,
        tag("h3", "Arguments") if effect.arguments is not None else None,
        tag("pre", _data(effect.arguments), class_="data") if effect.arguments is not None else None,
        tag("h3", "Result") if effect.result is not None else None,
        tag("pre", _data(effect.result), class_="data") if effect.result is not None else None,
        tag("code", line(effect.key), class_="dim"),
        class_="effect" + (" doubt" if is_doubtful else ""),
    )


def _raw(seen: Seen) -> Html:
    view, step, state = seen
    at = view.url("/step", thread=step.checkpoint.thread, id=step.checkpoint.id, download=1)
    whole = tag("p", tag("a", "All of it, as a file", href=at, download=True))
    written = _data_whole(state)
    return joined(whole, tag("pre", long_text(written, _RAW_MOST), class_="data raw", tabindex="0"))


def _data_whole(state: Any) -> str:
    try:
        return to_text(state)
    except HoldfastError:
        return repr(state)


def _download(checkpoint: Checkpoint, state: Any) -> Response:
    # A fixed name: one from the store would be a way to name files on the machine of whoever looks.
    headers = {"Content-Disposition": f'attachment; filename="state-{checkpoint.seq}.json"'}
    body = _data_whole(state).encode("utf-8", "replace")
    return Response(body, media_type="application/octet-stream", headers=headers)


def _about(seen: Seen) -> Html:
    view, step = seen.view, seen.step
    checkpoint = view.site.redacted(step.checkpoint)
    usage = checkpoint.usage
    said = usage and f"{count(usage.input)} in, {count(usage.output)} out, {count(usage.cached)} cached"
    parent = checkpoint.parent
    took = seconds_to_write(view.hf, step.checkpoint)
    facts: list[tuple[str, Child]] = [
        ("Id", tag("code", checkpoint.id)),
        ("Seq", checkpoint.seq),
        ("Step", checkpoint.step),
        ("Parent", tag("a", tag("code", parent), href=view.step(checkpoint.thread, parent)) if parent else "none"),
        ("Branch", step.branch),
        ("Digest", tag("code", checkpoint.digest)),
        ("Written", checkpoint.created_at.strftime("%Y-%m-%d %H:%M:%S.%f UTC")),
        ("Time to write", "" if took is None else duration(took)),
        ("Status", chip(checkpoint.status)),
        ("Reason", line(checkpoint.reason or "")),
        ("Trigger", line(checkpoint.trigger)),
        ("Writer", line(checkpoint.agent or "")),
        ("Label", line(checkpoint.label or "")),
        ("Tags", ", ".join(map(line, checkpoint.tags))),
        ("Size", f"{size(checkpoint.size)} as it is stored in full"),
        ("Usage", f"{said}, {money(usage.cost, usage.currency) or 'no cost told'}" if usage else ""),
        ("Schema version", "" if checkpoint.schema_version is None else checkpoint.schema_version),
        ("Resume hint", line(checkpoint.resume_hint or "")),
        ("Metadata", tag("pre", _data(checkpoint.metadata), class_="data") if checkpoint.metadata else ""),
        ("Load it", tag("code", f"hf.thread({checkpoint.thread!r}).load({checkpoint.id!r})")),
    ]
    return tag(
        "dl", [joined(tag("dt", name), tag("dd", value)) for name, value in facts if value != ""], class_="about"
    )
