"""The Waiting page: open questions and calls in doubt of all threads, with forms to answer them."""

from __future__ import annotations

from itertools import islice
from typing import Final

from starlette.responses import Response

from holdfast.looking.whole import Lost, whole
from holdfast.runs import waits
from holdfast.types import PendingQuestion
from holdfast.ui import acting
from holdfast.ui.html import Html, joined, line, tag
from holdfast.ui.values import brief
from holdfast.ui.view import View, live
from holdfast.ui.words import ago, chip

_SHOWN: Final = 100


def waiting_page(view: View) -> Response:
    """Return the page, oldest first."""
    lost: Lost = {}
    every = waits.waiting(whole(view.hf.context.store, lost), None)
    found = [view.redacted(each) for each in islice(every, _SHOWN + 1)]
    body = joined([tag("p", view.told(each), class_="bad") for each in lost], _questions(view, found))
    if view.asked("part") == "questions":
        return view.part("questions", body)
    return view.page("Waiting", tag("h1", "Waiting"), live("questions", body, every=3), here="/waiting")


def _questions(view: View, found: list[PendingQuestion]) -> Html:
    if not found:
        return tag("p", "No open questions or calls in doubt.", class_="dim empty")
    more = tag("p", "… and more", class_="cut") if found[_SHOWN:] else None
    return joined([_question(view, each) for each in found[:_SHOWN]], more)


def _question(view: View, each: PendingQuestion) -> Html:
    is_wait = each.about == "wait"
    form = None
    if view.site.may_write:
        form = (
            acting.answering(view, each.thread, each.name)
            if is_wait
            else acting.settling(view, each.thread, each.effect)
        )
    until = joined(" · until ", each.until.strftime("%Y-%m-%d %H:%M UTC")) if each.until else None
    return tag(
        "article",
        tag(
            "header",
            chip("waiting" if is_wait else "in doubt"),
            tag("b", line(each.name)),
            tag("a", line(each.thread), href=view.thread(each.thread)),
            tag("span", "asked ", ago(each.since), " ago", until, class_="dim"),
        ),
        tag("pre", brief(each.payload, 2000), class_="data") if each.payload is not None else None,
        form,
        data_key=f"{each.effect} {each.thread}",
        class_="effect" + ("" if is_wait else " doubt"),
    )
