"""The contents of a store: threads, log, show and diff."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, get_args

from holdfast import inspect
from holdfast.cli.command import Output, argument, choice, count, duration, limit, one_of, option, thread, verb
from holdfast.cli.layout import (
    STATUSES,
    call_line,
    chat_lines,
    decision_lines,
    explanations,
    json_line,
    short_id,
    status_line,
    status_style,
    status_text,
    tree_lines,
)
from holdfast.cli.location import Location
from holdfast.cli.terminal import (
    Column,
    Exit,
    columns,
    fitted,
    joined,
    put_json,
    report_lost,
    say,
    shortened,
    styled,
    table,
)
from holdfast.errors import NotFound
from holdfast.handle import Holdfast
from holdfast.runs import schedule
from holdfast.text import age, counted, line, money, quoted, sized, stamp
from holdfast.threads import audit
from holdfast.threads.diff import diff as changes_between
from holdfast.types import Change, Checkpoint

if TYPE_CHECKING:
    from rich.text import Text

_ALL: Final = 1 << 40
_LANES: Final = 12  # lanes further right are not drawn
_OWN: Final = (schedule.FOLDER, audit.ACTIONS)
_USUAL: Final = ("running", "idle")  # nearly every checkpoint has one of these, so they are not shown
_NEEDS_A_PERSON: Final = ("waiting", "in doubt", "interrupted", "released", "failed", "dead")
_MARKS: Final = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def newest(hf: Holdfast, given: str | None) -> str:
    """Return the given reference; of the newest thread, if it is @REF or None. NotFound if there is no thread.

    Threads that Holdfast itself writes, such as those of schedules, count only if there are no others.
    """
    is_bare = given is not None and given.startswith("@") and next(hf.threads(prefix=given, limit=1), None) is None
    if given is not None and not is_bare:
        return given
    names = [each.name for each in inspect.threads(hf, order="newest").threads]
    if not names:
        raise NotFound("the store has no threads")
    name = next((name for name in names if not name.startswith(_OWN)), names[0])
    say(f"thread {line(name)} (the newest)")
    return f"{name}{given or ''}"


# -- threads -----------------------------------------------------------------------------------------------------------

_THREADS: Final = (
    Column("THREAD", shrinks=True),
    Column("STATUS", shrinks=True, style=status_style),
    Column("AGE", is_right=True),
    Column("STEP", is_right=True),
    Column("SAVES", is_right=True),
    Column("TOKENS", is_right=True),
    Column("COST", is_right=True),
    Column("SIZE", is_right=True),
    Column("AGENT", shrinks=True),
)


@verb(bar="reading")
@argument("[PREFIX]", default="")
@choice("--status STATUS", (each.replace(" ", "-") for each in get_args(inspect.ThreadStatus)))
@option("--contains TEXT", "only names that contain this")
@option("--agent NAME", "only threads of this agent")
@option("--older-than AGE", "not changed for at least this: 90s, 45m, 12h, 30d, 2w; 90 means 90s", duration)
@option("--newer-than AGE", "changed within this", duration)
@choice("--sort ORDER", get_args(inspect.Order), "newest", name="order")
@limit(100, "threads")
@option("--after TEXT", "continue a list that was cut: the text that it ended with")
def threads(hf: Holdfast, order: inspect.Order, after: str | None, limit: int, **given: Any) -> Output:
    """List threads, the newest first, with status, steps, tokens, cost, size and age.

    PREFIX selects names that start with it. A run is "interrupted" if its process died, and "in doubt" if it waits for
    the outcome of a call to be settled; `holdfast inbox` shows what to do. A thread without a run is "saved", or "saved
    as" the status that its last save gave.
    """
    if given["status"] is not None:
        given["status"] = given["status"].replace("-", " ")
    which = inspect.Filter(**{name: value for name, value in given.items() if value is not None})
    page = inspect.threads(hf, which, order=order, after=after, limit=limit or _ALL)
    notes: list[str] = []
    if not page.threads:
        where = "" if hf.context.namespace == "default" else f" in namespace {quoted(hf.context.namespace)}"
        notes.append(f"no threads{where}" if which == inspect.Filter() and after is None else "no matching threads")
    if page.after is not None:
        notes.append(f"more threads follow: pass {inspect.option('--after', page.after)}, or --limit 0 for all")
    needed = sum(each.has_run and each.status in _NEEDS_A_PERSON for each in page.threads)
    if needed and sys.stdout is not None and sys.stdout.isatty():
        notes.append(f"{needed} of these may need you: holdfast inbox")
    lines = table(_THREADS, [_thread_row(found) for found in page.threads]) if page.threads else ()
    return Output(page, lines, notes, page.lost)


def _thread_row(found: inspect.ThreadLine) -> list[str]:
    doubt = f" ({found.in_doubt} in doubt)" if found.in_doubt and found.status != "in doubt" else ""
    more = f" ({line(found.waits_for)})" if found.waits_for is not None and not doubt else ""
    if found.status == "queued" and found.priority:
        more = f" (priority {found.priority})"
    return [
        line(found.name),
        f"{status_text(found.status, has_run=found.has_run)}{doubt}{more}",
        age(found.updated_at),
        str(found.step),
        str(found.count),
        "" if found.tokens is None else f"{found.tokens:,}",
        money(found.cost, found.currency),
        sized(found.size),
        line(found.agent or ""),
    ]


# -- log ---------------------------------------------------------------------------------------------------------------


@verb(bar="reading")
@thread("[THREAD[@REF]]", "reference")
@limit(50, "checkpoints")
@option("--calls", "show the calls of each step")
def log(hf: Holdfast, reference: str | None, limit: int, calls: bool) -> Output:
    """Show the checkpoints of a thread, newest first, with its branches, crashes and resumes.

    Without THREAD, the newest thread is shown. THREAD@REF starts at an older checkpoint; see `holdfast show`. `@` is
    the head, `*` its ancestors, `o` checkpoints that a rewind abandoned. `!` marks where a run was resumed.
    """
    reference = newest(hf, reference)
    row, ref = inspect.split(hf, reference)
    before = None if ref == "@-1" else inspect.find(hf, reference).checkpoint.seq + 1
    found = inspect.timeline(hf, row.name, before=before, limit=limit or _ALL)
    notes: list[str] = []
    if found.before is not None:
        notes.append(f"{counted(found.count, 'checkpoint')} in all; --limit 0 shows all")
    elif found.unmarked:
        resumes = counted(found.resumed, "resume")
        notes.append(f"{found.unmarked} of {resumes} are not shown: only the newest are stored")
    return Output(found, _timeline_lines(found, with_calls=calls), notes, found.lost)


def _timeline_lines(found: inspect.Timeline, *, with_calls: bool) -> Iterator[str | Text]:
    if found.interrupted:
        yield styled("! interrupted: its process died", "red")
    if found.open_calls:
        yield fitted(" ", joined(["open step: ", _call_names(found.open_calls, is_held=found.is_held)], ""))
        if with_calls:
            yield from (fitted("   ", call_line(call, is_held=found.is_held)) for call in found.open_calls)
    for number, step in enumerate(found.steps):
        above = _joint(step) if number else None  # newer branches of the first one are not shown
        if above is not None:
            yield above
        for resumption in reversed(step.resumptions):
            yield fitted(_lane_prefix(step, is_below=False), _resumption(resumption))
        yield fitted(_dot(step), _step_line(step))
        if with_calls:
            below = _lane_prefix(step, is_below=True)
            yield from (fitted(below, f"    {call_line(call, is_held=False)}") for call in step.calls)
    if found.forked_from is not None and found.before is None:
        yield f"  forked from {line(found.forked_from)}"


def _step_line(step: inspect.Step) -> Text:
    checkpoint = step.checkpoint
    parts: list[str | Text] = [
        styled(short_id(checkpoint), "yellow"),
        f"step {checkpoint.step}",
        f"{age(checkpoint.created_at)} ago",
    ]
    if checkpoint.label is not None:
        parts.append(styled(f"[{line(checkpoint.label)}]", "green"))
    parts += [f"#{line(tag)}" for tag in checkpoint.tags]
    parts.append(line(checkpoint.trigger))
    if checkpoint.status not in _USUAL:
        parts.append(styled(checkpoint.status, STATUSES.get(checkpoint.status)))
    parts.append(sized(checkpoint.size))
    if checkpoint.usage is not None:
        parts.append(f"{checkpoint.usage.total or checkpoint.usage.input + checkpoint.usage.output:,} tokens")
    if step.calls:
        parts.append(_call_names(step.calls, is_held=False))
    if step.forks:
        parts.append(f"forked as {', '.join(map(line, step.forks))}")
    return joined(parts)


def _call_names(calls: tuple[inspect.Call, ...], *, is_held: bool) -> Text:
    models = sum(call.kind == "model" for call in calls)
    names: dict[str, int] = {}
    for call in calls:
        if call.kind not in ("model", "wait"):
            names[call.name] = names.get(call.name, 0) + 1
    parts: list[str | Text] = [counted(models, "model call")] if models else []
    parts += [line(name) if times == 1 else f"{line(name)} x{times}" for name, times in names.items()]
    parts += [f"waited for {line(call.name)}" for call in calls if call.kind == "wait"]
    doubt = sum(inspect.is_doubtful(call.kind, call.status, is_held=is_held) for call in calls)
    if doubt:
        parts.append(styled(f"{doubt} in doubt", "yellow"))
    return joined(parts, ", ")


def _resumption(resumption: inspect.Resumption) -> Text:
    answered = f", {counted(resumption.answered, 'call')} replayed" if resumption.answered else ""
    is_crash = resumption.after == "crash"
    what = "the process died" if is_crash else resumption.after
    return styled(f"! {what}; resumed {age(resumption.at)} ago{answered}", "red" if is_crash else "cyan")


# -- branches, in the style of `git log --graph` -----------------------------------------------------------------------


def _joint(step: inspect.Step) -> str | None:
    """Return the line above a checkpoint at which newer branches join, or None if none do."""
    joining = [lane for lane in step.joining if lane < _LANES]
    if not joining:
        return None
    drawn = _lanes({step.lane, *step.passing})
    for lane in joining:
        drawn = drawn.ljust(2 * lane)
        for at in range(2 * step.lane + 1, 2 * lane - 1):
            if drawn[at] == " ":
                drawn = f"{drawn[:at]}_{drawn[at + 1 :]}"
        drawn = f"{drawn[: 2 * lane - 1]}/{drawn[2 * lane :]}"
    return drawn


def _dot(step: inspect.Step) -> Text:
    """Return the prefix of a checkpoint's line: its dot, and the lanes that pass."""
    at = 2 * min(step.lane, _LANES)
    lanes = _lanes(set(step.passing)).ljust(at + 1)
    drawn = "@" if step.is_head else "*" if step.is_current else "o"
    style = "green" if step.is_head else None if step.is_current else "dim"
    return joined([lanes[:at], styled(drawn, style), lanes[at + 1 :]], "")


def _lane_prefix(step: inspect.Step, *, is_below: bool) -> str:
    """Return the prefix of extra lines about a checkpoint. Below it, its own lane continues if it has a parent."""
    own = {step.lane} if not is_below or step.parent else set()
    return _lanes({*step.passing, *own}).ljust(2 * min(step.lane, _LANES) + 1)


def _lanes(lanes: set[int]) -> str:
    shown = {lane for lane in lanes if lane < _LANES}
    return " ".join("|" if lane in shown else " " for lane in range(max(shown) + 1)) if shown else ""


# -- show --------------------------------------------------------------------------------------------------------------


@verb()
@thread("[THREAD[@REF]]", "reference")
@option("--chat", "show the messages (default if the state has messages)")
@option("--tree", "show the state as a tree")
@option("--raw", "write only the complete state, as JSON")
@option("--last N", "show the last N messages; 0 means all", count(), 20)
@option("--depth N", "show N levels of the tree", count(), 4)
def show(location: Location, reference: str | None, last: int, depth: int, **given: bool) -> Output | Exit:
    """Show a checkpoint: its metadata, and its messages as a chat or its state as a tree.

    A reference is THREAD (its head), THREAD@-2 (the checkpoint before the head), THREAD@12 (step 12), THREAD@label,
    THREAD@id (or the last characters of an id), or THREAD@2026-11-15T10:00 (the head at that time, in UTC). Without
    THREAD, the newest thread is shown, and @REF alone is one of its checkpoints. Tool calls are shown with their
    results. Terminal control characters are escaped.
    """
    one_of(*((f"--{name}", value) for name, value in given.items()))
    since, plan = None, None
    with location.open_existing() as hf:
        readable = inspect.Readable(hf)
        found = inspect.find(hf, newest(hf, reference))
        loaded = inspect.state_of(hf, found, raw=given["raw"])
        if found.is_head and not given["raw"]:  # --raw needs no journal, so it works even if the journal is damaged
            plan = readable.tried(lambda: inspect.recovery(hf, found.thread, location.default))
            since = inspect.open_calls(hf, found.thread) if plan is not None else None
    lost = [*readable.lost, *(() if plan is None else plan.lost), *(() if since is None else since.lost)]
    lost = [*(f"{each.path}: {each.why}" for each in loaded.lost), *dict.fromkeys(lost)]
    if given["raw"]:
        put_json(inspect.data_of(loaded.state))
        return report_lost(lost)
    chat = inspect.chat_of(
        loaded.state,
        start=-last if last else 0,
        journal=() if since is None else [each.effect for each in since.calls],
        is_held=since is not None and since.is_held,
    )
    is_chat = chat is not None and (given["chat"] or bool(chat.total)) and not given["tree"]
    notes = ["this state has no messages"] if given["chat"] and chat is None else []
    if plan is not None:
        notes += explanations(plan.decisions, has_resume=_offers_resume(plan))
    contents = chat_lines(chat) if chat is not None and is_chat else tree_lines(loaded.state, depth=depth)
    return Output(
        {"checkpoint": loaded, "chat": chat, "recovery": plan},
        chain(_about(loaded, found, plan), [""], contents),
        notes,
        lost,
    )


def _about(
    loaded: Checkpoint, found: inspect.FoundCheckpoint, plan: inspect.RecoveryPlan | None
) -> Iterator[str | Text]:
    yield styled(f"{line(found.thread)}{' (head)' if found.is_head else ''}", "bold")
    yield f"  step {loaded.step}, checkpoint {loaded.seq}, {loaded.id}"
    yield f"  {stamp(loaded.created_at)} ({age(loaded.created_at)} ago), {sized(loaded.size)}, {line(loaded.trigger)}"
    status, reason = (loaded.status, loaded.reason) if plan is None else (plan.status, plan.reason)
    yield joined(["  ", status_line(status, reason, has_run=plan is not None)], "")
    if plan is not None and plan.result is not None:
        yield fitted(" ", f"result: {json_line(plan.result)}")
    if loaded.label is not None or loaded.tags:
        label = [] if loaded.label is None else [f"[{line(loaded.label)}]"]
        yield f"  {' '.join([*label, *(f'#{line(tag)}' for tag in loaded.tags)])}"
    if loaded.usage is not None:
        used = loaded.usage
        cost = money(used.cost or None, used.currency)
        yield f"  {used.total or used.input + used.output:,} tokens{f', {cost}' if cost else ''}"
    if loaded.agent is not None:
        yield f"  agent {line(loaded.agent)}"
    if plan is not None and plan.status != "completed":
        yield f"  recovery: {line(plan.summary)}"
        for decision in plan.decisions:
            yield from decision_lines(decision)
        if _offers_resume(plan):
            yield f"    {line(plan.command)}"


def _offers_resume(plan: inspect.RecoveryPlan) -> bool:
    return plan.can_resume and not plan.decisions


# -- diff --------------------------------------------------------------------------------------------------------------


@verb()
@thread("[A]")
@thread("[B]")
@option("--raw", "compare the states of a LangGraph graph as they are stored")
def diff(hf: Holdfast, a: str | None, b: str | None, raw: bool) -> Output:
    """Show what was added, removed and changed between two checkpoints, of one thread or of two.

    A and B are references, as for `holdfast show`; B may be @REF alone, for the thread of A. With A alone, the command
    compares A with its parent; the parent of a fork's first checkpoint is the one it was forked from. Without A, it
    does that for the newest thread.
    """
    ends = _both(hf, newest(hf, a), b)
    found = changes_between(*(inspect.state_of(hf, each, partial=False, raw=raw).state for each in ends))
    data = {name: {"thread": end.thread, "id": end.checkpoint.id} for name, end in zip("ab", ends, strict=True)}
    notes = [] if found else ["no differences"]
    return Output({**data, "changes": found.changes}, map(_change_line, found.changes), notes)


def _both(hf: Holdfast, a: str, b: str | None) -> tuple[inspect.FoundCheckpoint, inspect.FoundCheckpoint]:
    first = inspect.find(hf, a)
    if b is not None:
        return first, inspect.find(hf, f"{first.thread}{b}" if b.startswith("@") else b)
    if first.checkpoint.parent is None:
        raise NotFound(f"{quoted(a)} is the first checkpoint of its thread; name a second one to compare it with")
    parent = inspect.parent_of(hf, first.checkpoint)
    if parent is None:
        raise NotFound(f"the checkpoint before {quoted(a)} was deleted; name a second one to compare it with")
    return parent, first


def _change_line(change: Change) -> Text:
    mark, style = _MARKS[change.kind]
    path = line(change.path)
    room = max(columns() - len(path) - 4, 24)
    if change.kind == "changed":
        half = (room - 3) // 2
        text = f"{shortened(json_line(change.before), half)} → {shortened(json_line(change.after), half)}"
    else:
        text = shortened(json_line(change.after if change.kind == "added" else change.before), room)
    return joined([styled(f"{mark} {path}", style), text])
