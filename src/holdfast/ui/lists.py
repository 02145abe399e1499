"""The pages about the whole store: inbox, threads, search, workers, and the store itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from starlette.responses import Response

from holdfast import text as printable
from holdfast.errors import InvalidArgument
from holdfast.inspect import (
    Commands,
    Decision,
    Filter,
    Hits,
    InboxItem,
    Order,
    RecordedCall,
    Stats,
    Tally,
    ThreadLine,
    ThreadStatus,
    call_numbered,
    inbox,
    search,
    stored_bytes,
    threads,
    work,
)
from holdfast.ui.actions import can_resume
from holdfast.ui.drawings import bar_chart
from holdfast.ui.figures import Figures, Verification
from holdfast.ui.request import PagePart, View

_ITEMS: Final = 100
_ROWS: Final = 50
_GROUPS: Final = {
    "decide": "Needs a decision",
    "interrupted": "Interrupted runs",
    "failed": "Failed runs",
    "stuck": "No progress",
}
_ORDERS: Final = {
    "newest": "newest first",
    "oldest": "oldest first",
    "name": "by name",
    "largest": "largest first",
    "longest": "most steps first",
}
_AGES: Final = {"": "at any time", "3600": "in the last hour", "86400": "in the last day", "604800": "in the last week"}
_SAVED: Final = "saved"
_REASONS: Final = ("failed", "halted", "dead", "queued")


# -- inbox ------------------------------------------------------------------------------------------------------------


def inbox_page(view: View) -> Response:
    """Return the first page: the runs that need a person."""
    return view.page(
        "inbox.html",
        "Inbox",
        {"items": PagePart("inbox_items.html", lambda: _inbox(view), every=3, label="Runs that need a person")},
        here="/",
        done=view.asked("done"),
    )


def _inbox(view: View) -> Mapping[str, Any]:
    found = inbox(view.hf)
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in found.items[:_ITEMS]:
        key = "decide" if item.decisions else item.need
        groups.setdefault(key, []).append(_inbox_item(view, item))
    return {
        "groups": [(title, groups[key]) for key, title in _GROUPS.items() if key in groups],
        "left_out": max(len(found.items) - _ITEMS, 0),
        "lost": view.lost(found.lost),
    }


def _inbox_item(view: View, item: InboxItem) -> dict[str, Any]:
    shown = view.redacted(item)
    decisions = with_calls(view, item.thread, shown.decisions)
    return {"item": shown, "decisions": decisions, "can_resume": can_resume(view, item.thread)}


def with_calls(view: View, thread: str, decisions: Sequence[Decision]) -> list[tuple[Decision, RecordedCall | None]]:
    """Return decisions, each with the recorded call that it is about; None for a question."""
    calls = [None if each.about == "wait" else call_numbered(view.hf, thread, each.effect) for each in decisions]
    return [(each, None if call is None else view.redacted(call)) for each, call in zip(decisions, calls, strict=True)]


# -- threads ----------------------------------------------------------------------------------------------------------


def threads_page(view: View, tallies: Figures[Tally]) -> Response:
    """Return the list of threads, with the number of threads of the whole store per status."""
    which, order, after = _asked(view)
    return view.page(
        "threads.html",
        "Threads",
        {
            "chips": PagePart(
                "threads_chips.html", lambda: _chips(view, tallies.get()), every=3, label="Threads by status"
            ),
            "rows": PagePart("threads_rows.html", lambda: _threads(view, which, order, after), label="Threads"),
        },
        here="/threads",
        agents=[agent for agent in tallies.get().agents if printable.line(view.told(agent)) == agent],
        orders=_ORDERS,
        ages=_AGES,
        order=order,
    )


def _asked(view: View) -> tuple[Filter, Order, str | None]:
    status, order, age = view.asked("status"), view.asked("order", "newest"), view.asked("age")
    if status not in ("", _SAVED, *get_args(ThreadStatus)):
        raise InvalidArgument(f"unknown status; one of {', '.join((*get_args(ThreadStatus), _SAVED))}")
    if order not in get_args(Order):
        raise InvalidArgument(f"unknown order; one of {', '.join(get_args(Order))}")
    which = Filter(
        contains=view.asked("q"),
        status=status if status and status != _SAVED else None,  # type: ignore[arg-type] # checked above
        # Without a run, the status is that of the last save.
        has_run=None if not status else status != _SAVED,
        newer_than=float(view.number("age", 0, 0, 2**40)) or None if age else None,
        agent=view.asked("agent") or None,
        tag=view.asked("tag") or None,
    )
    return which, order, view.asked("after") or None  # type: ignore[return-value] # checked above


def _chips(view: View, found: Tally) -> Mapping[str, Any]:
    order = ("in doubt", "waiting", "interrupted", "released", "failed", "dead", "running", "queued")
    known = (*order, *sorted(set(get_args(ThreadStatus)) - set(order)), _SAVED)
    return {
        "total": found.threads,
        "chips": [(each, found.statuses[each]) for each in known if each in found.statuses],
        "chosen": view.asked("status"),
        "lost": view.lost(found.lost),
    }


def _threads(view: View, which: Filter, order: Order, after: str | None) -> Mapping[str, Any]:
    found = threads(view.hf, which, order=order, after=after, limit=_ROWS)
    return {
        "rows": [{**_row(view, line), "depth": depth, "name": name} for line, depth, name in _nested(found.threads)],
        "after": found.after,
        "is_first": after is None,
        "page": _ROWS,
        "lost": view.lost(found.lost),
    }


def _nested(lines: Sequence[ThreadLine]) -> list[tuple[ThreadLine, int, str]]:
    """Return threads with child runs below their parents, if these are on the same page, with depth and name.

    A parent is where the first of its family was. The name of a child that starts with that of its parent is cut.
    """
    by_name = {line.name: line for line in lines}
    children: dict[str, list[ThreadLine]] = {}
    roots: dict[str, None] = {}
    for line in lines:
        if line.parent in by_name:
            children.setdefault(line.parent, []).append(line)
        root, seen = line, {line.name}
        while root.parent in by_name and root.parent not in seen:
            seen.add(root.parent)
            root = by_name[root.parent]
        roots[root.name] = None
    found: list[tuple[ThreadLine, int, str]] = []

    def add(line: ThreadLine, depth: int) -> None:
        found.append((line, depth, line.name.removeprefix(line.parent or "") if depth else line.name))
        for child in children.pop(line.name, ()):
            add(child, depth + 1)

    for name in roots:
        add(by_name[name], 0)
    return found


def _row(view: View, line: ThreadLine) -> dict[str, Any]:
    why = ""
    if line.waits_for:
        why = f"asks {line.waits_for}" if line.status == "waiting" else line.waits_for
    elif line.reason and line.status in _REASONS:
        why = view.told(line.reason)[:120]
    elif line.priority and line.status == "queued":
        why = f"priority {line.priority}"
    return {
        "line": line,
        "agent": view.told(line.agent) if line.agent else "",
        "tags": [view.told(tag) for tag in line.tags],
        "why": why,
        "status": line.status if line.has_run or line.status != "running" else _SAVED,
        # The newest crash is counted only when the run is resumed.
        "crashed": line.crashed + (line.status == "interrupted"),
    }


# -- search -----------------------------------------------------------------------------------------------------------


def search_page(view: View) -> Response:
    """Return the threads whose names, messages or states contain a text."""
    text = view.asked("q")
    hits: Hits | None = None
    names: list[str] = []
    if text.strip():
        after = view.asked("after") or None
        hits = search(view.hf, text, after=after, redacted=view.redacted)
        if after is None:
            names = [line.name for line in threads(view.hf, Filter(contains=text), limit=20).threads]
    lost = [] if hits is None else view.lost(hits.lost)
    return view.page("search.html", "Search", here="/search", text=text, hits=hits, names=names, lost=lost)


# -- workers ----------------------------------------------------------------------------------------------------------


def workers_page(view: View) -> Response:
    """Return which process runs what, the queue, and the runs that wait."""

    def data() -> Mapping[str, Any]:
        found = work(view.hf)
        command = Commands(view.hf).worker()
        return {"work": view.redacted(found), "worker_command": command, "lost": view.lost(found.lost)}

    return view.page(
        "workers.html",
        "Workers",
        {"work": PagePart("workers_list.html", data, label="Workers and queue")},
        here="/workers",
    )


# -- the store --------------------------------------------------------------------------------------------------------


def store_page(view: View, figures: Figures[Stats], tallies: Figures[Tally], check: Verification) -> Response:
    """Return the size of the store, its growth, and its verification."""

    def data() -> Mapping[str, Any]:
        found = figures.get()
        days = [(day.day, day.checkpoints, day.bytes) for day in found.days]
        return {"stats": found, "chart": bar_chart(days), "lost": view.lost(found.lost)}

    return view.page(
        "store.html",
        "Store",
        {
            "figures": PagePart(
                "store_figures.html", data, every=0, label="Figures", is_lazy=True, link="Show figures"
            ),
            "verification": PagePart(
                "store_verify.html", lambda: _verification(view, check), every=0.5, label="Verify"
            ),
        },
        here="/store",
        on_disk=stored_bytes(view.hf),
        tally=tallies.get(),
    )


def _verification(view: View, check: Verification) -> Mapping[str, Any]:
    report = check.report
    problems = [] if report is None else report.problems[:_ITEMS]
    return {
        "check": check,
        "failed": view.told(check.failed) if check.failed is not None else "",
        "problems": [(each.thread or "", each.seqs[:8], view.told(each.what)) for each in problems],
    }
