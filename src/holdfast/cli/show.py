"""Show a checkpoint of a thread, by default its head: its metadata, and its messages as a chat or its state as a tree.

A reference is THREAD, THREAD@-2 (the checkpoint before the head), THREAD@12 (step 12), THREAD@label, THREAD@id (or the
last characters of an id), or THREAD@2026-11-15T10:00 (the head at that time, in UTC). Tool calls are shown with their
results. Terminal control characters are escaped. --raw writes the state as JSON.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from holdfast.cli.amounts import age, grouped, money, sized, stamp
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, put, put_json
from holdfast.cli.losses import tell_lost
from holdfast.cli.numbers import count
from holdfast.cli.paint import columns, cut, painted
from holdfast.cli.standing import colour_of, stands
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.cli.talks import chat_lines, in_a_line, tree_lines
from holdfast.cli.wording import worded
from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.looking.chat import chat_of
from holdfast.looking.data import data_of
from holdfast.looking.nearest import existing
from holdfast.looking.printable import line
from holdfast.looking.recovery import Recovery, recovery
from holdfast.looking.references import Found, find, state_of
from holdfast.looking.whole import Lost, whole
from holdfast.runs.open_entries import open_entries
from holdfast.runs.record import effect_of
from holdfast.threads.ancestry import branch_of
from holdfast.types import Checkpoint, Effect


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("reference", metavar="THREAD[@REF]", help="the checkpoint; see above")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--chat", action="store_true", help="show the messages (default if the state has messages)")
    how.add_argument("--tree", action="store_true", help="show the state as a tree")
    how.add_argument("--raw", action="store_true", help="write only the complete state, as JSON")
    parser.add_argument(
        "--last", metavar="N", type=count, default=20, help="show the last N messages (default: 20; 0: all)"
    )
    parser.add_argument("--depth", metavar="N", type=count, default=4, help="show N levels of the tree (default: 4)")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the checkpoint, its state and messages as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        found = find(hf, arguments.reference)
        loaded = state_of(hf, found)
        lost: Lost = {}
        # --raw needs no journal, so it works even if the journal is damaged.
        resume = _resume(hf, found, lost) if found.is_head and not arguments.raw else None
        journal = _open(hf, found, lost) if resume is not None else []
    if arguments.raw:
        put_json(data_of(loaded.state))
        return _ended(loaded, lost)
    chat = chat_of(loaded.state, start=-arguments.last if arguments.last else 0, journal=journal)
    if arguments.json:
        put_json({"checkpoint": data_of(loaded), "chat": data_of(chat), "recovery": data_of(resume)})
    else:
        for each in _about(loaded, found, resume):
            put(each)
        put("")
        if chat is None or arguments.tree:
            if arguments.chat:
                say("this state has no messages")
            for each in tree_lines(loaded.state, depth=arguments.depth, most=100):
                put(each)
        else:
            if chat.start:
                put(painted(f"… {counted(chat.start, 'earlier message')}; --last 0 shows all", "dim"))
            for each in chat_lines(chat):
                put(each)
    return _ended(loaded, lost)


def _ended(loaded: Checkpoint, lost: Lost) -> int:
    for each in loaded.lost:
        say(f"{line(each.path)} is lost: {line(each.why)}")
    return tell_lost(lost, Exit.ERROR if loaded.lost else Exit.OK)


def _resume(hf: Holdfast, found: Found, lost: Lost) -> Recovery | None:
    try:
        resume = recovery(hf, found.thread)
    except Damaged as damage:
        lost[str(damage)] = None
        return None
    if resume is not None:
        lost.update(dict.fromkeys(resume.lost))
    return resume


def _open(hf: Holdfast, found: Found, lost: Lost) -> list[Effect]:
    """Return the calls of the open step: their outcomes are not in the state yet."""
    row = existing(hf, found.thread)
    store, number = whole(hf.context.store, lost), row.position.thread
    run = store.run(number)
    closed = 0 if run is None else run.closed
    rows = open_entries(store, number, closed, store.last_entry(number), row.summary.step, branch_of(row.position))
    return [effect_of(each) for each in rows]


def _about(loaded: Checkpoint, found: Found, resume: Recovery | None) -> Iterator[str]:
    head = " (head)" if found.is_head else ""
    yield painted(f"{line(found.thread)}{head}", "bold")
    status = loaded.status if resume is None else resume.standing
    reason = loaded.reason if resume is None else resume.reason
    yield f"  step {loaded.step}, checkpoint {loaded.seq}, {loaded.id}"
    when = f"{stamp(loaded.created_at)} UTC ({age(loaded.created_at)} ago)"
    yield f"  {when}, {sized(loaded.size)}, {line(loaded.trigger)}"
    more = "" if reason is None else f": {line(reason.removeprefix(f'{status}: '))}"
    said = stands(status, has_run=resume is not None)
    yield f"  {painted(said, colour_of(said))}{worded(more)}"
    if resume is not None and resume.result is not None:
        yield cut(f"  result: {in_a_line(resume.result)}", columns())
    if loaded.label is not None or loaded.tags:
        label = "" if loaded.label is None else f"[{line(loaded.label)}] "
        yield f"  {label}{' '.join(f'#{line(tag)}' for tag in loaded.tags)}".rstrip()
    if loaded.usage is not None:
        used = loaded.usage
        cost = money(used.cost or None, used.currency)
        yield f"  {grouped(used.total or used.input + used.output)} tokens{f', {cost}' if cost else ''}"
    if loaded.agent is not None:
        yield f"  agent {line(loaded.agent)}"
    if resume is not None and resume.standing != "completed":
        yield f"  recovery: {line(resume.summary)}"
        for planned in resume.calls:
            yield from (f"    {line(each)}" for each in planned.commands)
