"""Show the checkpoints of a thread, newest first, with its branches, crashes and resumes.

`@` is the head, `*` its ancestors, `o` checkpoints that a rewind abandoned. `!` marks where a run was resumed. --calls
shows the calls of each step.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from holdfast.cli.amounts import age, grouped, sized, span
from holdfast.cli.bar import bar
from holdfast.cli.findings import counted, put, put_json
from holdfast.cli.graph import beside, joint, lead
from holdfast.cli.losses import tell_lost
from holdfast.cli.numbers import count
from holdfast.cli.paint import STANDINGS, Colour, columns, cut, painted
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.looking.calls import Call
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.looking.references import find, split
from holdfast.looking.timeline import Resumption, Step, Timeline, timeline

_SHORT = 8  # the last characters of an id, unique within its thread
_USUAL = ("running", "idle")  # nearly every checkpoint has one of these, so they are not shown
_LEFT = {"in_doubt": "in doubt", "begun": "begun", "failed": "failed", "not_done": "not done", "asked": "asked"}


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD[@REF]", help="the thread, and the newest checkpoint to show")
    parser.add_argument(
        "--limit", metavar="N", type=count, default=50, help="show at most N checkpoints (default: 50; 0: all)"
    )
    parser.add_argument("--calls", action="store_true", help="show the calls of each step")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the timeline as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("reading"):
        thread, ref = split(hf, arguments.thread)
        before = None if ref == "@-1" else find(hf, arguments.thread).checkpoint.seq + 1
        found = timeline(hf, thread.name, before=before, limit=arguments.limit or 1 << 40)
    if arguments.json:
        put_json(data_of(found))
    else:
        for each in _lines(found, with_calls=arguments.calls):
            put(each)
        if found.before is not None:
            say(f"{counted(found.count, 'checkpoint')} in all; --limit 0 shows all")
        if found.unmarked and found.before is None:
            say(f"{found.unmarked} of {counted(found.resumed, 'resume')} are not shown: only the newest are stored")
    return tell_lost(found.lost)


def _lines(found: Timeline, *, with_calls: bool) -> Iterator[str]:
    if found.interrupted:
        yield painted("! interrupted: its process died", "red")
    if found.open_calls:
        yield _fit(" ", f"open step: {_calls(found.open_calls)}")
        if with_calls:
            yield from (_fit("   ", _call(call)) for call in found.open_calls)
    for number, step in enumerate(found.steps):
        above = joint(step) if number else None  # newer branches of the first one are not shown
        if above is not None:
            yield above
        for resumption in reversed(step.resumptions):
            yield _fit(beside(step, is_below=False), painted(f"! {_resumed(resumption)}", _colour(resumption)))
        yield _fit(lead(step), _about(step))
        if with_calls:
            yield from (_fit(beside(step, is_below=True), f"    {_call(call)}") for call in step.calls)
    if found.forked_from is not None and found.before is None:
        yield f"  forked from {line(found.forked_from)}"


def _fit(drawn: str, text: str) -> str:
    return cut(f"{drawn} {text}".rstrip(), columns())


def _about(step: Step) -> str:
    checkpoint = step.checkpoint
    parts = [
        painted(checkpoint.id[-_SHORT:], "yellow"),
        f"step {checkpoint.step}",
        f"{age(checkpoint.created_at)} ago",
    ]
    if checkpoint.label is not None:
        parts.append(painted(f"[{line(checkpoint.label)}]", "green"))
    parts += [f"#{line(tag)}" for tag in checkpoint.tags]
    parts.append(line(checkpoint.trigger))
    if checkpoint.status not in _USUAL:
        parts.append(painted(checkpoint.status, STANDINGS.get(checkpoint.status)))
    parts.append(sized(checkpoint.size))
    if checkpoint.usage is not None:
        parts.append(f"{grouped(checkpoint.usage.total or checkpoint.usage.input + checkpoint.usage.output)} tokens")
    if step.calls:
        parts.append(_calls(step.calls))
    if step.forks:
        parts.append(f"forked as {', '.join(map(line, step.forks))}")
    return "  ".join(parts)


def _calls(calls: tuple[Call, ...]) -> str:
    models = sum(call.kind == "model" for call in calls)
    others = [call for call in calls if call.kind not in ("model", "wait")]
    parts = [counted(models, "model call")] if models else []
    names: dict[str, int] = {}
    for call in others:
        names[call.name] = names.get(call.name, 0) + 1
    parts += [line(name) if times == 1 else f"{line(name)} x{times}" for name, times in names.items()]
    parts += [f"waited for {line(call.name)}" for call in calls if call.kind == "wait"]
    doubt = sum(call.status in ("in_doubt", "unstored") for call in calls)
    if doubt:
        parts.append(painted(f"{doubt} in doubt", "yellow"))
    return ", ".join(parts)


def _call(call: Call) -> str:
    took = "" if call.seconds is None else f"  {span(call.seconds)}"
    state = "" if call.status == "done" else f"  {_LEFT.get(call.status, call.status)}"
    error = "" if call.error is None else f": {line(call.error)}"
    back = "  replayed" if call.given_back else ""
    return f"{call.number}  {call.kind}  {line(call.name)}{took}{state}{error}{back}"


def _resumed(resumption: Resumption) -> str:
    answered = f", {counted(resumption.answered, 'call')} replayed" if resumption.answered else ""
    what = "the process died" if resumption.after == "crash" else f"{resumption.after}"
    return f"{what}; resumed {age(resumption.at)} ago{answered}"


def _colour(resumption: Resumption) -> Colour:
    return "red" if resumption.after == "crash" else "cyan"
