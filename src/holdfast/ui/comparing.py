"""The Diff tab: changes between a step and its parent, or another checkpoint."""

from __future__ import annotations

from typing import Final

from holdfast.errors import Ambiguous, NotFound
from holdfast.looking.references import find, state_of
from holdfast.looking.timeline import timeline
from holdfast.threads.diff import diff
from holdfast.types import ABSENT, Change, Checkpoint
from holdfast.ui.html import Html, joined, line, tag
from holdfast.ui.seen import Seen, data
from holdfast.ui.view import View
from holdfast.ui.words import plural

_CHANGES_MOST: Final = 300


def diff_view(seen: Seen) -> Html:
    """Return the changes, and a field to choose another checkpoint to compare with."""
    view, step, state = seen
    checkpoint = step.checkpoint
    picked = view.asked("against")
    picker = _picker(view, checkpoint, picked)
    if not picked and checkpoint.parent is None:
        return joined(
            picker, tag("p", "This is the first checkpoint. Choose another one to compare it with.", class_="dim")
        )
    other = _picked(view, checkpoint.thread, picked) if picked else _parent(view, checkpoint)
    changes = diff(view.redacted(other).state, state).changes
    title = tag(
        "p",
        f"{plural(len(changes), 'change')} since ",
        tag("a", f"{line(other.thread)} step {other.step}", href=view.step(other.thread, other.id)),
    )
    rows = [_change(each) for each in changes[:_CHANGES_MOST]]
    more = tag("p", f"… {len(changes) - _CHANGES_MOST} more changes", class_="cut") if changes[_CHANGES_MOST:] else None
    return joined(picker, title, tag("ol", rows, class_="changes"), more)


def named(view: View, thread: str, ref: str) -> Checkpoint:
    """Return the checkpoint of a thread that a reference names, as on the command line.

    Raises NotFound or Ambiguous.
    """
    missing: NotFound | None = None
    try:
        found = find(view.hf, f"{thread}@{ref.removeprefix('@')}")
        if found.thread == thread:
            return state_of(view.hf, found)
    except Ambiguous:
        raise
    except NotFound as error:
        missing = error
    try:
        # A label may contain "@", and another thread's name may be this thread's name plus "@" and the reference.
        return view.hf.thread(thread).load(f"@{ref.removeprefix('@')}", partial=True)
    except NotFound as error:
        raise missing or error from error


def _picker(view: View, checkpoint: Checkpoint, picked: str) -> Html:
    box = tag(
        "input",
        name="against",
        value=line(picked),
        placeholder="parent, or @-2, @12, a label, a date, an id",
        id="against",
        autocomplete="off",
    )
    return tag(
        "form",
        view.given(thread=checkpoint.thread, id=checkpoint.id, view="diff"),
        tag("label", "Compare with ", box),
        tag("button", "Compare", type="submit"),
        method="get",
        action=view.url("/step"),
        class_="search against",
    )


def _picked(view: View, thread: str, ref: str) -> Checkpoint:
    """Return a checkpoint of this thread, or of another thread if the reference names it."""
    try:
        return named(view, thread, ref)
    except NotFound:
        if "@" not in ref.lstrip("@"):
            raise
        return state_of(view.hf, find(view.hf, ref))


def _parent(view: View, checkpoint: Checkpoint) -> Checkpoint:
    """Return the parent of a checkpoint, which may be in the thread it was forked from."""
    parent = checkpoint.parent or ""
    try:
        return view.hf.thread(checkpoint.thread).load(parent, partial=True)
    except NotFound:
        origin, _, id = (timeline(view.hf, checkpoint.thread, limit=0).forked_from or "").rpartition("@")
        if not origin or id != parent:
            raise
        return view.hf.thread(origin).load(id, partial=True)


def _change(change: Change) -> Html:
    before = None if change.before is ABSENT else tag("pre", data(change.before), class_="before", dir="auto")
    after = None if change.after is ABSENT else tag("pre", data(change.after), class_="after", dir="auto")
    sign = {"added": "+", "removed": "-", "changed": "±"}[change.kind]
    path = tag("code", line(change.path[:300]))
    return tag("li", tag("b", sign, aria_label=change.kind), path, before, after, class_=change.kind)
