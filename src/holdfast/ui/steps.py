"""The page of a step, with tabs: Messages, State, Diff, Effects, Raw, About."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from holdfast.errors import Damaged
from holdfast.ids import to_text as id_text
from holdfast.looking.nearest import existing
from holdfast.looking.timeline import Step, step_of
from holdfast.looking.writing import seconds_to_write
from holdfast.types import Checkpoint
from holdfast.ui import acting
from holdfast.ui.comparing import diff_view, named
from holdfast.ui.effects import effects_view
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.messages import messages_view
from holdfast.ui.seen import Seen, data, written
from holdfast.ui.values import long_text, tree
from holdfast.ui.view import View
from holdfast.ui.words import chip, count, duration, money, size

VIEWS: Final = ("messages", "state", "diff", "effects", "raw", "about")
_RAW_MOST: Final = 300_000


def step_page(view: View) -> Response:
    """Return the page of a checkpoint, by id or any other reference, with the tab that is asked for."""
    name, ref = view.asked("thread"), view.asked("id", "@-1")
    which = view.asked("view", "messages")
    which = which if which in VIEWS else "messages"
    checkpoint = named(view, name, ref)
    if ref != checkpoint.id or view.is_packed:
        # Redirect to a permanent URL: "@-1" would name another checkpoint later.
        kept = {each: view.asked(each) for each in ("view", "against", "from", "download", "edit")}
        there = view.url("/step", thread=name, id=checkpoint.id, **kept)
        return Response(status_code=303, headers={"Location": there})
    redacted = view.redacted(checkpoint)
    state = redacted.state
    is_whole = state is checkpoint.state and not checkpoint.lost
    if view.asked("download"):
        return _download(checkpoint, state)
    if view.asked("part") == "edit":
        return view.part("edit", acting.edited(state, is_whole=is_whole))
    step = step_of(view.hf, checkpoint)
    bodies = {
        "messages": messages_view,
        "state": _state,
        "diff": diff_view,
        "effects": effects_view,
        "raw": _raw,
        "about": _about,
    }
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
        acting.step_actions(view, step, state, is_whole=is_whole),
        tabs,
        _lost(redacted),
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
    gone = None if step.is_current else tag("span", "on an abandoned branch", class_="mark crash")
    return joined(
        crumbs,
        tag(
            "div",
            tag("h1", f"Step {checkpoint.step}"),
            # Every step of a run was saved while it ran, so "running" would say nothing.
            chip(checkpoint.status) if checkpoint.status != "running" else None,
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
        store = view.hf.context.store
        row = store.checkpoint(existing(view.hf, checkpoint.thread).position.thread, seq) if seq > 0 else None
    except Damaged:
        row = None
    if row is None or row.deleted:
        return tag("span", said, class_="dim")
    href = view.step(checkpoint.thread, id_text(row.id), view.asked("view") or None)
    return tag("a", said, href=href, data_key_press=key)


def _lost(checkpoint: Checkpoint) -> Html | None:
    if not checkpoint.lost:
        return None
    items = [tag("li", f"{line(each.path)}: {line(each.why)}") for each in checkpoint.lost[:20]]
    return tag("div", "Parts of this state cannot be read:", tag("ul", items), class_="bad", role="alert")


def _state(seen: Seen) -> Html:
    return tree(seen.state)


def _raw(seen: Seen) -> Html:
    view, step, state = seen
    at = view.url("/step", thread=step.checkpoint.thread, id=step.checkpoint.id, download=1)
    whole = tag("p", tag("a", "Download the complete state", href=at, download=True))
    return joined(whole, tag("pre", long_text(written(state), _RAW_MOST), class_="data raw", tabindex="0"))


def _download(checkpoint: Checkpoint, state: Any) -> Response:
    # A fixed name: stored data must not choose file names on the user's machine.
    headers = {"Content-Disposition": f'attachment; filename="state-{checkpoint.seq}.json"'}
    body = written(state).encode("utf-8", "replace")
    return Response(body, media_type="application/octet-stream", headers=headers)


def _about(seen: Seen) -> Html:
    view, step = seen.view, seen.step
    checkpoint = view.redacted(step.checkpoint)
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
        ("Saved at", checkpoint.created_at.strftime("%Y-%m-%d %H:%M:%S.%f UTC")),
        ("Time to write", "" if took is None else duration(took)),
        ("Status", checkpoint.status),
        ("Reason", line(checkpoint.reason or "")),
        ("Trigger", line(checkpoint.trigger)),
        ("Agent", line(checkpoint.agent or "")),
        ("Label", line(checkpoint.label or "")),
        ("Tags", ", ".join(map(line, checkpoint.tags))),
        ("Size", f"{size(checkpoint.size)} as a full copy"),
        ("Usage", f"{said}, {money(usage.cost, usage.currency) or 'no cost recorded'}" if usage else ""),
        ("Schema version", "" if checkpoint.schema_version is None else checkpoint.schema_version),
        ("Resume hint", line(checkpoint.resume_hint or "")),
        ("Metadata", tag("pre", data(checkpoint.metadata), class_="data") if checkpoint.metadata else ""),
        ("Load in Python", tag("code", f"hf.thread({checkpoint.thread!r}).load({checkpoint.id!r})")),
    ]
    return tag(
        "dl", [joined(tag("dt", name), tag("dd", value)) for name, value in facts if value != ""], class_="about"
    )
