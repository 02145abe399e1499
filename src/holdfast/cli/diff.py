"""Show what was added, removed and changed between two checkpoints, of one thread or of two.

A and B are references, as for `holdfast show`; B may be @REF alone, for the thread of A. With A alone, the command
compares A with its parent; the parent of a fork's first checkpoint is the one it was forked from.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.paint import Colour, columns, cut, painted
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.cli.talks import in_a_line
from holdfast.errors import NotFound
from holdfast.handle import Holdfast
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.looking.references import Found, find
from holdfast.looking.timeline import timeline
from holdfast.text import quoted
from holdfast.threads.diff import diff
from holdfast.types import Change

_MARKS: dict[str, tuple[str, Colour]] = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("a", metavar="A", help="a checkpoint: THREAD[@REF]")
    parser.add_argument("b", metavar="B", nargs="?", help="another one; @REF means one of the same thread")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the changes as JSON, with full values")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        a, b = _both(hf, arguments.a, arguments.b)
        found = diff(*(hf.thread(each.thread).load(each.checkpoint).state for each in (a, b)))
    if arguments.json:
        ends = {name: {"thread": each.thread, "id": each.checkpoint.id} for name, each in (("a", a), ("b", b))}
        put_json({**ends, "changes": [data_of(change) for change in found.changes]})
        return Exit.OK
    for change in found.changes:
        put(_line(change))
    if not found:
        say("no differences")
    return Exit.OK


def _both(hf: Holdfast, a: str, b: str | None) -> tuple[Found, Found]:
    first = find(hf, a)
    if b is None:
        if first.checkpoint.parent is None:
            raise NotFound(f"{quoted(a)} is the first checkpoint of its thread; name a second one to compare it with")
        try:
            return find(hf, _before(hf, first)), first
        except NotFound:
            raise NotFound(
                f"the checkpoint before {quoted(a)} was deleted; name a second one to compare it with"
            ) from None
    return first, find(hf, f"{first.thread}{b}" if b.startswith("@") else b)


def _before(hf: Holdfast, found: Found) -> str:
    """Return a reference to a checkpoint's parent, which may be in the thread it was forked from."""
    if found.checkpoint.seq == 1:
        origin = timeline(hf, found.thread, before=2, limit=1, calls=False).forked_from
        if origin is not None:
            return origin
    return f"{found.thread}@{found.checkpoint.parent}"


def _line(change: Change) -> str:
    mark, colour = _MARKS[change.kind]
    path = line(change.path)
    room = max(columns() - len(path) - 4, 24)
    if change.kind == "changed":
        half = (room - 3) // 2
        text = f"{cut(in_a_line(change.before), half)} → {cut(in_a_line(change.after), half)}"
    else:
        text = cut(in_a_line(change.after if change.kind == "added" else change.before), room)
    return f"{painted(f'{mark} {path}', colour)}  {text}"
