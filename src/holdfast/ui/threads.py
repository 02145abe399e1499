"""The first page: figures of the listed runs, and the list of threads."""

from __future__ import annotations

from typing import Final, get_args

from starlette.responses import Response

from holdfast.errors import InvalidArgument
from holdfast.looking.accounts import Account, account, weight
from holdfast.looking.threads import Filter, Order, Standing, ThreadLine, ThreadPage, threads
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.view import View, live
from holdfast.ui.words import ago, count, money, plural, short, size, standing

_ROWS: Final = 50
_NAME_MOST: Final = 160
_AT_ONCE: Final = 3_000  # journal entries to count before the page is sent; with more, the page loads the figures later
_AT_MOST: Final = 60_000  # journal entries to count at all
_ORDERS: Final = {
    "name": "by name",
    "newest": "newest first",
    "oldest": "oldest first",
    "largest": "largest first",
    "longest": "most steps first",
}
_HOW: Final = {
    "probe": "its probe reported that it ",
    "person": "a person reported that it ",
    "rerun": "called again with the same key",
    "give_up": "given up; the model was shown an unknown outcome",
}
_FOUND_OUT: Final = ("probe", "person")


def threads_page(view: View) -> Response:
    """Return the page: figures, search form, and a live list of threads."""
    which, order, after = _asked(view)
    found = threads(view.hf, which, order=order, after=after, limit=_ROWS)
    part = view.asked("part")
    if part == "rows":
        return view.part("rows", _table(view, found))
    if part == "account":
        return view.part("account", _account(view, found))
    entries = sum(weight(view.hf, each.name) for each in found.threads if each.crashed or each.resumed or each.step)
    is_asked = entries <= _AT_ONCE or view.asked("with") == "account"
    told = _account(view, found) if is_asked else None
    body = _counting(view) if told is None else told
    return view.page(
        "Threads",
        tag("h1", "Threads", class_="sr"),
        live("account", body, every=0.2 if told is None else 3, element="section", aria_label="Figures"),
        _search(view, which, order),
        live("rows", _table(view, found), every=2, aria_label="Threads"),
        here="/",
    )


def _counting(view: View) -> Html:
    words = {name: view.asked(name) for name in ("q", "status", "order", "agent", "after")}
    link = tag("a", "Show figures of these runs", href=view.url("/", **words, **{"with": "account"}))
    return tag("p", "Counting the calls of these runs … ", tag("noscript", link), class_="dim")


def _asked(view: View) -> tuple[Filter, Order, str | None]:
    status = view.asked("status")
    order = view.asked("order", "name")
    if status and status not in get_args(Standing):
        raise InvalidArgument(f"unknown status; one of {', '.join(get_args(Standing))}")
    if order not in get_args(Order):
        raise InvalidArgument(f"unknown order; one of {', '.join(get_args(Order))}")
    text = view.asked("q")
    which = Filter(contains=text, standing=status or None, agent=view.asked("agent") or None)  # type: ignore[arg-type] # checked above
    return which, order, view.asked("after") or None  # type: ignore[return-value] # checked above


def _search(view: View, which: Filter, order: str) -> Html:
    statuses = [("", "any status"), *((each, each) for each in get_args(Standing))]
    return tag(
        "form",
        tag("label", tag("span", "Search", class_="sr"), _box(which.contains)),
        tag("label", tag("span", "Status", class_="sr"), _select("status", statuses, which.standing or "")),
        tag("label", tag("span", "Order", class_="sr"), _select("order", list(_ORDERS.items()), order)),
        tag("button", "Show", type="submit"),
        tag("span", tag("kbd", "/"), " search  ", tag("kbd", "j"), tag("kbd", "k"), " move", class_="keys"),
        method="get",
        action=view.url("/"),
        role="search",
        class_="search",
    )


def _box(text: str) -> Html:
    return tag("input", type="search", name="q", value=text, placeholder="part of a name", id="q", autocomplete="off")


def _select(name: str, options: list[tuple[str, str]], chosen: str) -> Html:
    return tag("select", [_option(each, said, chosen) for each, said in options], name=name)


def _option(value: str, said: str, chosen: str) -> Html:
    return tag("option", said, value=value, selected=value == chosen)


# -- the list ----------------------------------------------------------------------------------------------------------


def _table(view: View, found: ThreadPage) -> Html:
    lost = tag("p", view.told(found.lost), class_="bad") if found.lost else None
    if not found.threads:
        return joined(lost, tag("p", "No matching threads.", class_="dim empty"))
    heads = ("Thread", "Status", "Steps", "Tokens", "Cost", "Size", "Changed")
    numbers = ("Steps", "Tokens", "Cost", "Size")
    head = tag("tr", [tag("th", each, scope="col", class_="num" if each in numbers else None) for each in heads])
    rows = [_row(view, each) for each in found.threads]
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="threads list")
    return joined(lost, table, _next(view, found))


def _row(view: View, each: ThreadLine) -> Html:
    about = [each.agent and view.told(each.agent), each.parent and f"child of {line(each.parent)}"]
    why = None
    if each.waits_for:
        why = f"asks {line(each.waits_for)}" if each.standing == "waiting" else line(each.waits_for)
    elif each.reason and each.standing in ("failed", "halted", "dead"):
        why = view.told(each.reason)[:120]
    elif each.priority and each.standing == "queued":
        why = f"priority {each.priority}"
    crashed = each.crashed + (
        each.standing == "interrupted"
    )  # the newest crash is counted only when the run is resumed
    marks = [
        tag("span", f"✕ {crashed}", tag("span", " crashes", class_="sr"), class_="mark crash") if crashed else None,
        tag("span", f"↻ {each.resumed}", tag("span", " resumes", class_="sr"), class_="mark") if each.resumed else None,
        tag("span", plural(each.in_doubt, "call") + " in doubt", class_="mark doubt") if each.in_doubt else None,
    ]
    return tag(
        "tr",
        tag(
            "td",
            tag("a", _name(each.name), href=view.thread(each.name), class_="name", data_key=each.name),
            tag("span", " · ".join(filter(None, about)), class_="dim") if any(about) else None,
            class_="first",
        ),
        tag(
            "td",
            standing(each.standing, has_run=each.has_run),
            tag("span", why, class_="why") if why else None,
            marks,
            data_label="Status",
        ),
        _number("Steps", count(each.step)),
        _number("Tokens", short(each.tokens) if each.tokens else ""),
        _number("Cost", money(each.cost or 0, each.currency)),
        _number("Size", size(each.size)),
        tag("td", ago(each.updated_at), data_label="Changed"),
    )


def _name(name: str) -> str:
    """Return a name, shortened in the middle if it is very long."""
    told = line(name)
    return told if len(told) <= _NAME_MOST else f"{told[: _NAME_MOST // 2]} … {told[-_NAME_MOST // 2 :]}"


def _number(label: str, text: str) -> Html:
    return tag("td", text, class_="num", data_label=label)


def _next(view: View, found: ThreadPage) -> Html:
    is_first = not view.asked("after")
    if is_first and found.after is None:
        return tag("p", plural(len(found.threads), "thread"), class_="pages dim")
    words = {name: view.asked(name) for name in ("q", "status", "order", "agent")}
    links: list[Child] = []
    if not is_first:
        links.append(tag("a", "First page", href=view.url("/", **words)))
    if found.after is not None:
        links.append(tag("a", f"Next {_ROWS}", href=view.url("/", **words, after=found.after), rel="next"))
    return tag("nav", links, class_="pages", aria_label="More threads")


# -- figures -----------------------------------------------------------------------------------------------------------


def _account(view: View, found: ThreadPage) -> Html:
    names: list[str] = []
    entries = 0
    for each in found.threads:
        entries += weight(view.hf, each.name)
        if entries > _AT_MOST:
            break
        names.append(each.name)
    return figures(account(view.hf, names), left_out=len(found.threads) - len(names))


def figures(told: Account, left_out: int = 0) -> Html:
    """Return the figures of runs as tiles."""
    of = "of the listed thread" if told.threads == 1 else f"of the {told.threads} listed threads"
    acted = [each for each in told.done if each.kind != "read"]
    effects = sum(each.count for each in acted)
    tiles = [
        _tile("crashed", told.crashed, "crashes", "processes that died during a run", warn=told.crashed),
        _tile("resumed", told.resumed, "resumes", "after crashes, waits and errors"),
        _tile("models", told.models, "model calls", "recorded; calls cut off by a crash are not counted"),
        _tile("models-known", told.models_known, "model calls replayed", "not paid for again"),
        _tile("tools", told.tools, "tool calls", f"{count(told.tools_known)} more replayed"),
        _tile("effects", effects, "effects", ", ".join(f"{line(each.tool)} {each.count}" for each in acted) or "none"),
        _tile("in-doubt", told.in_doubt, "calls in doubt", "outcome unknown", doubt=told.in_doubt),
    ]
    how = tag(
        "ul",
        [
            tag(
                "li",
                tag("b", each.count, data_settled=f"{each.tool}/{each.how}/{'yes' if each.happened else 'no'}"),
                f" {line(each.tool)}: {_HOW[each.how]}",
                ("happened" if each.happened else "did not happen") if each.how in _FOUND_OUT else None,
            )
            for each in told.settled
        ],
        class_="settled",
    )
    note = f"Runs {of}" + (f"; {plural(left_out, 'thread')} with long journals not counted" if left_out else "")
    return joined(
        tag("h2", note),
        tag("dl", tiles, class_="tiles"),
        joined(tag("h3", "How calls in doubt were settled"), how) if told.settled else None,
    )


def _tile(key: str, number: int, name: str, about: str, *, warn: int = 0, doubt: int = 0) -> Html:
    tone = "crash" if warn else "doubt" if doubt else None
    return tag(
        "div",
        tag("dt", name),
        tag("dd", tag("b", count(number), data_figure=key, class_=tone), tag("span", about, class_="dim")),
    )
