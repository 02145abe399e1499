"""Save to several threads together: `SaveTo`, `AppendTo`, and the commit that stores all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias, Unpack

from holdfast.errors import InvalidArgument
from holdfast.threads.context import Context
from holdfast.threads.list_member import ListMember
from holdfast.threads.metadata import SaveOptions
from holdfast.threads.save import ANY, Expect, PendingSave, save_all
from holdfast.threads.thread import Thread
from holdfast.types import Checkpoint


class SaveTo:
    """A save for `hf.save_together`, with the arguments of `Thread.save`. `thread` is a name or a `Thread`."""

    def __init__(
        self,
        thread: str | Thread,
        state: Any,
        *,
        expect: Expect = None,
        past_effects: bool = False,
        **options: Unpack[SaveOptions],
    ) -> None:
        self.thread = thread
        self.state = state
        self.expect = expect
        self.past_effects = past_effects
        self.options = options


class AppendTo:
    """An append for `hf.save_together`, with the arguments of `Thread.append`. `thread` is a name or a `Thread`."""

    def __init__(
        self,
        thread: str | Thread,
        path: str,
        items: list[Any],
        *,
        expect: Expect = None,
        unique: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.thread = thread
        self.path = path
        self.items = items
        self.expect = expect
        self.unique = unique
        self.metadata = metadata


ThreadChange: TypeAlias = SaveTo | AppendTo


def save_together(context: Context, changes: Sequence[ThreadChange]) -> list[Checkpoint]:
    """Store all changes in one commit. See `Holdfast.save_together`."""
    context.check_open()
    made: list[PendingSave] = []
    for each in changes:
        if not isinstance(each, SaveTo | AppendTo):
            raise InvalidArgument("save_together takes a list of SaveTo and AppendTo; nothing was saved")
        thread = Thread(context, each.thread) if isinstance(each.thread, str) else each.thread
        if not isinstance(thread, Thread) or not thread.saver.is_of(context):
            raise InvalidArgument("a thread must be a name or a thread object of this handle; nothing was saved")
        made.append(_pending(context, thread, each))
    if not made or len({change.saver.name for change in made}) < len(made):
        raise InvalidArgument("save_together takes one or more threads, each of them once; nothing was saved")
    return save_all(made)


def _pending(context: Context, thread: Thread, change: ThreadChange) -> PendingSave:
    saver = thread.saver
    if isinstance(change, AppendTo):
        member = ListMember(context, saver, change.path)
        return member.appended(change.items, change.expect, change.unique, change.metadata)
    prepare = partial(saver.prepare, saver.request(change.state, **change.options), change.expect)
    return PendingSave(saver, prepare, change.expect is ANY, change.past_effects)
