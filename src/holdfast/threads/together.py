"""Save to several threads together: `SaveTo`, `AppendTo`, and the commit that stores all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias, Unpack

from holdfast.errors import InvalidArgument
from holdfast.threads.context import Context
from holdfast.threads.list_member import ListMember
from holdfast.threads.metadata import SaveOptions
from holdfast.threads.save import ANY, Change, Expect, save_all
from holdfast.threads.thread import Thread
from holdfast.types import Checkpoint


class SaveTo:
    """A save for `hf.save_together`, with the arguments of `Thread.save`. `thread` is a name or an object."""

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
        self._state = state
        self._expect = expect
        self._past_effects = past_effects
        self._options = options

    def change(self, context: Context, thread: Thread) -> Change:
        """The change that `save_all` makes."""
        saver = thread.saver
        prepare = partial(saver.prepare, saver.request(self._state, **self._options), self._expect)
        return Change(saver, prepare, self._expect is ANY, self._past_effects)


class AppendTo:
    """An append for `hf.save_together`, with the arguments of `Thread.append`. `thread` is a name or an object."""

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
        self._path = path
        self._items = items
        self._expect = expect
        self._unique = unique
        self._metadata = metadata

    def change(self, context: Context, thread: Thread) -> Change:
        """The change that `save_all` makes."""
        member = ListMember(context, thread.saver, self._path)
        return member.appended(self._items, self._expect, self._unique, self._metadata)


ThreadChange: TypeAlias = SaveTo | AppendTo


def save_together(context: Context, changes: Sequence[ThreadChange]) -> list[Checkpoint]:
    """Store all changes in one commit. See `Holdfast.save_together`."""
    context.check_open()
    made: list[Change] = []
    for each in changes:
        if not isinstance(each, SaveTo | AppendTo):
            raise InvalidArgument("save_together takes a list of SaveTo and AppendTo; nothing was saved")
        thread = Thread(context, each.thread) if isinstance(each.thread, str) else each.thread
        if not isinstance(thread, Thread) or not thread.saver.is_of(context):
            raise InvalidArgument("a thread must be a name or a thread object of this handle; nothing was saved")
        made.append(each.change(context, thread))
    if not made or len({change.saver.name for change in made}) < len(made):
        raise InvalidArgument("save_together takes one or more threads, each of them once; nothing was saved")
    return save_all(made)
