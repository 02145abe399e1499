"""Runs that need a person: inbox, answer, settle and cancel; and acts, which happen only once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, get_args

from holdfast import inspect
from holdfast.cli.command import (
    FORM,
    Output,
    argument,
    by_option,
    choice,
    count,
    duration,
    limit,
    one_of,
    option,
    thread,
    tools_option,
    value_in,
    verb,
)
from holdfast.cli.layout import STATUSES, decision_lines, explanations, json_line
from holdfast.cli.location import Location
from holdfast.cli.named_objects import load, load_tools
from holdfast.cli.terminal import Exit, fitted, joined, progress, styled, worded, wrapped
from holdfast.errors import Conflict, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.inspect import graph_actions
from holdfast.inspect.graphs import is_graph, journal_of
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome
from holdfast.text import age, line, quoted
from holdfast.types import Act

if TYPE_CHECKING:
    from rich.text import Text

_MARKS: Final = {"answered": "=", "again": ">", "decide": "?", "wait": "?", "child": ">"}


@verb()
@choice("--only NEED", (each.replace(" ", "-") for each in get_args(inspect.Need)), multiple=True)
@option("--name NAME", "only questions and calls with this name")
@tools_option("the agent's tools")
@option("--calls", "show each call, and what a resume does with it")
@option("--stuck-after AGE", "stuck: no progress for this long; 90 means 90s", duration, "5m")
@limit(50, "runs")
def inbox(
    location: Location,
    only: tuple[str, ...],
    name: str | None,
    tools: str | None,
    calls: bool,
    stuck_after: float,
    limit: int,
) -> Output:
    """List the runs that need a person, with what there is to decide and the commands for it.

    That is: open questions, calls that need approval or are in doubt, interrupted runs with what a resume would do,
    failed runs, and runs without progress. Runs with a decision to make come first, and the newest first. Exits with 5
    if calls are in doubt or need approval.

    --tools names the agent's tools, which declare how a call in doubt is settled. Without it, the plan assumes that a
    person decides about irreversible calls.
    """
    functions = load_tools(tools)
    with location.open_existing(tools=functions) as hf, progress("reading"):
        found = inspect.inbox(hf, stuck_after=stuck_after, default=location.default)
    wanted = {each.replace("-", " ") for each in only}
    items = [
        item
        for item in found.items
        if (not wanted or _needs(item) & wanted)
        and (name is None or any(decision.name == name for decision in item.decisions))
    ]
    is_doubtful = any(decision.about != "wait" for item in items for decision in item.decisions)
    more = max(len(items) - limit, 0) if limit else 0
    items = items[: limit or None]
    notes: list[str] = []
    if not items and not found.lost:
        notes.append("nothing needs you" if not wanted and name is None else "nothing of this kind needs you")
    if more:
        notes.append(f"{more:,} more: pass --limit 0 for all, or --only with a need")
    decisions = [decision for item in items for decision in item.decisions]
    notes += explanations(decisions, has_resume=any(item.command for item in items))
    lines = (each for number, item in enumerate(items) for each in _item_lines(item, number, with_calls=calls))
    code = Exit.IN_DOUBT if is_doubtful else Exit.OK
    return Output({"inbox": items, "more": more}, lines, notes, found.lost, code)


def _needs(item: inspect.InboxItem) -> set[str]:
    return {item.need, *(decision.about for decision in item.decisions if decision.about != "wait")}


def _item_lines(item: inspect.InboxItem, number: int, *, with_calls: bool) -> Iterator[str | Text]:
    plan = item.plan
    if number:
        yield ""
    parts: list[str | Text] = [
        styled(line(item.thread), "bold"),
        styled(item.need, STATUSES.get(item.need)),
        f"{age(item.since)} ago",
    ]
    if plan is not None:
        parts.append(f"step {plan.step}{f', attempt {plan.attempt}' if plan.attempt > 1 else ''}")
    yield joined(parts)
    is_asked = item.need in ("question", "approval", "in doubt")  # then the decisions say why
    if not is_asked:
        yield from wrapped(worded(item.why), "  ")
    for decision in item.decisions:
        yield from decision_lines(decision)
    if plan is not None and not is_asked:
        yield from wrapped(f"recovery: {plan.summary}", "  ")
    if plan is not None and with_calls:
        for each in plan.calls:
            yield f"  {_MARKS[each.does]} {each.call.number} {line(each.call.name)}: {each.why}"
    if item.command is not None:
        yield f"    {line(item.command)}"


# -- answer, settle, cancel --------------------------------------------------------------------------------------------


@verb()
@thread()
@argument("NAME")
@argument("VALUE")
@by_option
@option("--text", "VALUE is a plain string, not JSON")
@option("--early", "answer the first question of that name before it is asked")
@option("--graph APP", "the graph of a LangGraph thread, as module:attribute; it is run")
def answer(
    location: Location, thread: str, name: str, value: str, by: str | None, text: bool, early: bool, graph: str | None
) -> Output:
    """Answer a question of a run. `holdfast inbox` lists open questions.

    NAME is the name of the question, as passed to run.wait. VALUE is JSON, @FILE to read a file, or - to read stdin.
    The first answer counts. Repeating it changes nothing; a different answer is refused with exit code 4. So is the
    answer to a question that the run has not asked, unless --early is given. Calls in doubt are not answered but
    settled: see `holdfast settle`.

    A question of a LangGraph thread needs --graph: the answer resumes the graph. NAME is the id of the question, or the
    name of its node.
    """
    given = value if text else value_in(value, "the answer")
    with location.open_existing() as hf:
        inspect.existing(hf, thread)
        if is_graph(hf, thread):
            return _answer_graph(hf, thread, name, given, graph)
        try:
            hf.answer(thread, name, given, by=by, early=early)
        except Conflict:
            _require_question(hf, thread, name)
            raise
        following = _following(hf, thread, location.default)
    told = f"answered {quoted(name)} of {quoted(thread)}"
    return Output({"thread": thread, "name": name, "by": by}, told, [following])


def _require_question(hf: Holdfast, thread: str, name: str) -> None:
    """Raise Conflict if what is called `name` is settled and not answered."""
    plan = inspect.recovery(hf, thread)
    for each in () if plan is None else plan.decisions:
        if each.name == name and each.about != "wait":
            what = "a call in doubt" if each.about == "in doubt" else "a call that waits for permission"
            raise Conflict(
                f"{quoted(name)} is {what}, not a question; nothing was stored. `holdfast inbox` shows "
                "how to settle it."
            )


def _answer_graph(hf: Holdfast, thread: str, name: str, given: Any, graph: str | None) -> Output:
    graph_actions.asked(hf, thread, name)
    if graph is None:
        raise InvalidArgument(
            f"{quoted(thread)} is a thread of a LangGraph graph; nothing was answered. Pass the graph, which is run "
            "with the answer: --graph module:attribute."
        )
    found = graph_actions.answer(graph_actions.runnable(load(graph), hf, graph), hf, thread, name, given)
    told = f"answered {quoted(name)} of {quoted(thread)}, which is {found.status} now"
    return Output({"thread": thread, "name": name, "status": found.status, "next": found.next}, told)


@verb()
@thread()
@argument("EFFECT", kind=count(1))
@option("--happened RESULT", f"the call happened and returned this: {FORM}")
@option("--not-done", "the call did not happen: it is made")
@option("--allow", "the call waits for permission, and is allowed: it is made")
@option("--give-up", "the outcome cannot be found out")
@by_option
@option("--force", "with --not-done: also if the call may still act")
def settle(
    location: Location, thread: str, effect: int, happened: str | None, by: str | None, force: bool, **given: bool
) -> Output:
    """Record the outcome of a call in doubt, so that its run can continue. Find out first whether the call happened.

    EFFECT is the number of the call, as `holdfast inbox` and `holdfast effects THREAD` show it. After --happened the
    run uses the given result. After --not-done or --allow the call is made; while the call may still act, that needs
    --force. After --give-up the model sees that the outcome is unknown.
    """
    one_of(("--happened", happened), *((f"--{name.replace('_', '-')}", value) for name, value in given.items()))
    settled: Outcome
    if happened is not None:
        settled, word = Happened(value_in(happened, "the result")), "done"
    elif given["not_done"] or given["allow"]:
        settled, word = NotDone(), "not_done"
    elif given["give_up"]:
        settled, word = GiveUp(), "given_up"
    else:
        raise InvalidArgument("pass the outcome: --happened RESULT, --not-done, --allow or --give-up")
    with location.open_existing() as hf:
        inspect.existing(hf, thread)
        if given["allow"]:
            _require_not_in_doubt(hf, thread, effect)
        hf.settle(journal_of(hf, thread), effect, settled, by, force=force)
        following = _following(hf, thread, location.default)
    shown = "allowed" if given["allow"] else word.replace("_", " ")
    told = f"call {effect} of {quoted(thread)} is settled: {shown}"
    return Output({"thread": thread, "effect": effect, "status": word, "by": by}, told, [following])


def _require_not_in_doubt(hf: Holdfast, thread: str, effect: int) -> None:
    """Refuse --allow for a call that may have happened: it is recorded as not done, and then it is made again."""
    found = inspect.CallHistory(hf, thread).newest_first(numbers={effect})
    if any(each.is_doubtful for each in found):
        raise Conflict(
            f"call {effect} of {quoted(thread)} is in doubt, and does not wait for permission; nothing was changed. "
            "Find out whether it happened, then pass --happened RESULT or --not-done."
        )


def _following(hf: Holdfast, thread: str, default: str | None) -> str:
    """Say what happens to the run next."""
    if is_graph(hf, thread):
        return f"resume the graph: {inspect.Commands(hf, default).resume(thread)}"
    run = hf.run_info(thread)
    if run is None or run.status in ("completed", "halted"):
        return "the run is not resumed by this" if run is not None else "the thread has no run"
    if run.status == "waiting":
        return "the run waits for more: holdfast inbox"
    resume = inspect.Commands(hf, default).resume(thread)
    if run.handler is not None:
        return f"a worker with handler {quoted(run.handler)} resumes the run, or: {resume}"
    return f"resume the run: {resume}"


@verb()
@thread()
@option("--reason TEXT", "the reason, stored with the run", str, "cancelled on the command line")
def cancel(hf: Holdfast, thread: str, reason: str) -> Output:
    """Halt a run: at once if no process holds it, otherwise at its next call. Its progress is kept; it can be resumed.

    Its child runs are cancelled too. Exits with 4 if the run is completed.
    """
    inspect.existing(hf, thread)
    hf.cancel(thread, reason)
    run = hf.run_info(thread)
    status = None if run is None else run.status
    told = f"{quoted(thread)} {'is halted' if status == 'halted' else 'will be halted at its next call'}"
    return Output({"thread": thread, "halted": status == "halted", "status": status, "reason": reason}, told)


# -- acts --------------------------------------------------------------------------------------------------------------


@verb(bar="reading")
@argument("[TOOL]")
@option("--limit N", "at most N acts", count(), 1000)
def acts(hf: Holdfast, tool: str | None, limit: int) -> Output:
    """List the acts that calls have claimed, the newest first: what may happen only once, and which call has done it.

    Tools with `identity=` claim acts. TOOL is the declared name of a tool, or the qualified name of its function. An
    act that is under way, in doubt or done is not done again; `holdfast release` lets it happen again.
    """
    found = heapq.nlargest(limit + 1, hf.acts(tool), key=_claimed_at)
    shown, is_cut = found[:limit], len(found) > limit
    notes = ["there are more; pass --limit"] if is_cut else [] if found else ["no acts are claimed"]
    lines = (each for act in shown for each in _act_lines(act))
    return Output({"acts": shown, "more": is_cut}, lines, notes)


def _claimed_at(act: Act) -> float:
    return 0.0 if act.started_at is None else act.started_at.timestamp()


def _act_lines(act: Act) -> Iterator[str | Text]:
    when = "" if act.started_at is None else f", {age(act.started_at)} ago"
    call = "a deleted thread" if act.thread is None else f"{line(act.thread)} call {act.number}{when}"
    what = "an act" if act.tool is None else joined([styled(line(act.tool), "bold"), line(act.identity or "")], " ")
    status = act.status.replace("_", " ")
    yield joined([what, styled(status, STATUSES.get(status)), call])
    if act.result is not None:
        yield fitted(" ", json_line(act.result))
    if act.by is not None:
        yield f"  released by {line(act.by)}: {line(act.reason or '')}"
    yield f"  {act.id}"


@verb()
@argument("ACT")
@option("--by NAME", "the person that decides", required=True)
@option("--reason TEXT", "why the act may happen again", required=True)
@option("--force", "also if the call of the act may still act")
def release(hf: Holdfast, act: str, by: str, reason: str, force: bool) -> Output:
    """Let an act happen again. Find out first that it has not happened, or that it may happen twice.

    ACT is the id of an act, as `holdfast acts` shows it. The name and the reason are recorded with the call that has
    claimed the act, or in the thread `holdfast/actions` if the thread of that call was deleted. An act that is under
    way cannot be released. While its call may still act, that needs --force.
    """
    hf.release(act, by=by, reason=reason, force=force)
    return Output({"act": act, "status": "released"}, "the act is released; the next call does it again")
