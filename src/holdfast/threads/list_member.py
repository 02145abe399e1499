"""A list in the state of a thread: append to it, read its end and take its last item, without the rest of the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from holdfast.delta.base import Base
from holdfast.delta.change import stays_map
from holdfast.delta.hints import Apart, Extended, Kept
from holdfast.delta.load import state_of, value_of
from holdfast.delta.parts import Kind, Map, Part, Series
from holdfast.errors import Damaged, InvalidArgument
from holdfast.text import quoted
from holdfast.threads.context import Context
from holdfast.threads.metadata import SeenHead, checked_details
from holdfast.threads.save import ANY, NEW, Expect, PendingSave, Save, Saver, SaveRequest, save_all
from holdfast.threads.scan import thread_named

T = TypeVar("T")


class ListMember:
    """The list under one key of a thread's state, which is a dict. The time of a change does not grow with the list."""

    def __init__(self, context: Context, saver: Saver, path: object) -> None:
        if type(path) is not str or not path:
            raise InvalidArgument("path must be the key of a list in the state")
        self._context = context
        self._saver = saver
        self._path: Final = path

    def appended(
        self, items: list[Any], expect: Expect, unique: str | None, metadata: dict[str, Any] | None = None
    ) -> PendingSave:
        """The change that appends items, and creates the thread and the list if they are missing.

        There is nothing to do if `unique` was used before.
        """
        if type(items) is not list:
            raise InvalidArgument("append takes a list of items")
        items = self._context.redaction.copy(items)

        def prepared(head: SeenHead | None, base: Base | None) -> Save | None:
            if unique is not None and self._is_used(head, unique):
                return None
            series = self._series(base)
            if base is not None and series is not None:
                state = {**_kept(base.root), self._path: Extended(series, series.length, items)}
            else:
                whole = {} if base is None else self._whole(base)
                state = self._with(whole, [*whole.get(self._path, ()), *items], base)
            return self._prepared(state, head, expect, unique, metadata)

        return PendingSave(self._saver, lambda: self._at_head(prepared), expect in (None, ANY))

    def pop(self, expect: Expect, unique: str | None) -> tuple[Any, ...]:
        """Remove the last item, and return it in a tuple; an empty tuple if there is none."""
        last: list[Any] = []

        def prepared(head: SeenHead | None, base: Base | None) -> Save | None:
            last[:] = [] if base is None else self._last(base, 1)
            if base is None or not last or (unique is not None and self._is_used(head, unique)):
                return None
            series = self._series(base)
            if series is not None and series.length > 1:
                state = {**_kept(base.root), self._path: Extended(series, series.length - 1, [])}
            else:
                whole = self._whole(base)
                state = self._with(whole, whole[self._path][:-1], base)
            return self._prepared(state, head, expect, unique)

        change = PendingSave(self._saver, lambda: self._at_head(prepared), expect in (None, ANY))
        return tuple(last) if save_all([change]) else ()

    def tail(self, count: int | None) -> list[Any]:
        """The last items, at most `count` of them, oldest first; all if it is None."""
        if count is not None and (type(count) is not int or count < 0):
            raise InvalidArgument("n must be a whole number, 0 or more")
        with self._saver.lock:
            return self._at_head(lambda _, base: [] if base is None or count == 0 else self._last(base, count))

    # -- the state as parts -----------------------------------------------------------------------------------------

    def _at_head(self, read: Callable[[SeenHead | None, Base | None], T]) -> T:
        """Call `read` with the head in the store and its state as parts, and return what it returns. Raises Damaged.

        The head is not remembered; its parts are.
        """
        store, bases = self._context.store, self._context.bases
        while (head := self._saver.stored_head()) is not None:
            try:
                base = bases.get(head.position.thread, head.position.head) or self._saver.loaded_base(head)
                if base is not None:
                    bases.put(head.position.thread, base)
                return read(head, base)
            except Damaged:
                # The cells and blobs of a head are swept if another writer moves the thread and deletes it meanwhile.
                now = thread_named(store, self._saver.name)
                if now is not None and now.position == head.position:
                    raise
        return read(None, None)

    def _part(self, base: Base) -> Part | None:
        root = base.root
        if not isinstance(root, Map):
            return None
        return root.parts[root.keys.index(self._path)] if self._path in root.keys else None

    def _series(self, base: Base | None) -> Series | None:
        part = None if base is None else self._part(base)
        return part if isinstance(part, Series) and part.kind is Kind.LIST else None

    def _whole(self, base: Base) -> dict[str, Any]:
        state = state_of(self._context.store, base)
        if type(state) is not dict or type(state.get(self._path, [])) is not list:
            raise InvalidArgument(
                f"the state of thread {quoted(self._saver.name)} has no list {quoted(self._path)}; nothing was changed"
            )
        return state

    def _with(self, whole: dict[str, Any], items: list[Any], base: Base | None) -> dict[str, Any]:
        """The state with this list, which the next change can extend if the state is divided into its values."""
        state = {**whole, self._path: items}
        is_divided = stays_map(state, None if base is None else base.root)
        return {**state, self._path: Apart(items)} if is_divided else state

    def _last(self, base: Base, count: int | None) -> list[Any]:
        """The last items. Only the chunks that have them are decoded."""
        series = self._series(base)
        if series is None:
            items: list[Any] = self._whole(base).get(self._path, [])
        else:
            first, left = len(series.chunks), series.length if count is None else count
            while first and left > 0:
                first -= 1
                left -= series.chunks[first].count
            items = value_of(self._context.store, Series(Kind.LIST, series.chunks[first:], None, 0, (), {}))
        return items if count is None else items[max(len(items) - count, 0) :]

    # -- saving -----------------------------------------------------------------------------------------------------

    def _prepared(
        self,
        state: Any,
        head: SeenHead | None,
        expect: Expect,
        unique: str | None,
        metadata: dict[str, Any] | None = None,
    ) -> Save:
        label = None if unique is None else _label(unique)
        details = checked_details(self._context.redaction, label=label, metadata=metadata, trigger="append")
        # The state has parts of this head, so the save must follow this one, not one that is read later.
        after = self._saver.required(expect, head)
        return self._saver.prepare(SaveRequest(state, details), NEW if after is None else after)

    def _is_used(self, head: SeenHead | None, unique: str) -> bool:
        if head is None:
            return False
        found = self._context.store.checkpoints(head.position.thread, before=None, limit=1, label=_label(unique))
        return bool(found)


def _kept(root: Part) -> dict[str, Any]:
    """The members of a state, which stay as they are."""
    assert isinstance(root, Map)  # noqa: S101 - one of its members is the list
    return {key: Kept(part) for key, part in zip(root.keys, root.parts, strict=True)}


def _label(unique: str) -> str:
    return f"once {unique}"
