"""Snapshots of messages, to detect changes and to make copies.

Comparing a message with its snapshot is much faster than serializing it. Messages are mutable, so identity is not
enough: every field is compared at every depth, including types and order, because these are stored. A message with
anything other than plain data has no snapshot and is always serialized.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from langchain_core.messages import BaseMessage

_new: Final = object.__new__
_set: Final = object.__setattr__

_fields_of: Final = attrgetter("__dict__")
_extra_of: Final = attrgetter("__pydantic_extra__")

_MANY: Final = 64
_ATOMS: Final = frozenset((str, int, bool, bytes, type(None)))


class _NotPlain(Exception):
    pass


class Snapshot:
    """The content of a message, without its id."""

    __slots__ = (
        "_at",
        "_fields_set",
        "_keys",
        "_new_dicts",
        "_new_lists",
        "_types",
        "_values",
        "extra",
        "fields",
        "kind",
        "nested",
    )

    def __init__(self, message: BaseMessage) -> None:
        """Raises if the message contains anything other than plain data; see `taken`."""
        fields = {key: _copied(value) for key, value in message.__dict__.items()}
        fields["id"] = None
        self.fields = fields
        self._keys = [*fields]
        self._values = [*fields.values()]
        self._at = self._keys.index("id")
        self.kind = type(message)
        self._types = [*map(type, self._values)]
        self.nested = tuple(
            (at, key, value)
            for at, (key, value) in enumerate(fields.items())
            if type(value) not in _ATOMS and (value or type(value) is float)
        )
        self._new_dicts = tuple(key for key, value in fields.items() if type(value) is dict and not value)
        self._new_lists = tuple(key for key, value in fields.items() if type(value) is list and not value)
        self._fields_set = message.__pydantic_fields_set__.copy()
        extra = message.__pydantic_extra__
        self.extra = None if extra is None else _copied(extra)
        if message.__pydantic_private__:
            raise _NotPlain

    def holds(self, message: BaseMessage, id: str | None) -> bool:
        """Whether the message is unchanged, including types, and has this id."""
        fields = message.__dict__
        values = [*fields.values()]
        if type(message) is not self.kind or [*fields] != self._keys or not _is_same(values[self._at], id):
            return False
        values[self._at] = None
        if values != self._values or [*map(type, values)] != self._types:
            return False
        for at, _, value in self.nested:
            if not _is_same(values[at], value):
                return False
        extra = message.__pydantic_extra__
        return extra == self.extra and (not extra or _is_same(extra, self.extra))

    def copy(self, id: str | None) -> BaseMessage:
        """Make a message that shares nothing mutable with any other."""
        fields = self.fields.copy()
        fields["id"] = id
        for key in self._new_dicts:
            fields[key] = {}
        for key in self._new_lists:
            fields[key] = []
        for _, key, value in self.nested:
            fields[key] = _copied(value)
        message: BaseMessage = _new(self.kind)
        _set(message, "__dict__", fields)
        _set(message, "__pydantic_fields_set__", self._fields_set.copy())
        _set(message, "__pydantic_extra__", _copied(self.extra) if self.extra else None if self.extra is None else {})
        _set(message, "__pydantic_private__", None)
        return message


class Snapshots:
    """The snapshots of a list of messages, compared all at once: usually no message has changed."""

    __slots__ = ("_each", "_extras", "_fields", "_is_plain", "_kinds", "_nested", "_types", "ids")

    def __init__(self, each: list[Snapshot | None], ids: list[str | None], known: Snapshots | None = None) -> None:
        """`ids` are the ids of the messages; `known` are the snapshots of the messages before them."""
        before = 0 if known is None else len(known.ids)
        self.ids: list[str | None] = ids if known is None else known.ids + ids
        self._each: list[Snapshot | None] = each if known is None else known._each + each
        # Messages without a snapshot, or with extra fields, are compared one by one.
        self._is_plain: bool = (known is None or known._is_plain) and all(
            one is not None and not one.extra for one in each
        )
        plain = [one for one in each if one is not None] if self._is_plain else []
        fields = [{**one.fields, "id": id} for one, id in zip(plain, ids, strict=False)]
        types = [*map(type, chain.from_iterable(map(dict.values, fields)))]
        nested = [(before + at, key, value) for at, one in enumerate(plain) for _, key, value in one.nested]
        kinds, extras = [one.kind for one in plain], [one.extra for one in plain]
        self._fields: list[dict[str, Any]] = fields if known is None else known._fields + fields
        self._types: list[type] = types if known is None else known._types + types
        self._nested: list[tuple[int, str, Any]] = nested if known is None else known._nested + nested
        self._kinds: list[type] = kinds if known is None else known._kinds + kinds
        self._extras: list[Any] = extras if known is None else known._extras + extras

    def extended(self, keep: int, each: list[Snapshot | None], ids: list[str | None]) -> Snapshots:
        """The snapshots of the first `keep` messages, followed by others."""
        whole = keep == len(self.ids)
        return Snapshots(each, ids, self if whole else Snapshots(self._each[:keep], self.ids[:keep]))

    def unchanged(self, messages: list[BaseMessage]) -> int:
        """The number of messages at the start of the list that are unchanged."""
        if len(messages) == len(self._each) and self._all_hold(messages):
            return len(messages)
        for at, (snapshot, message, given) in enumerate(zip(self._each, messages, self.ids, strict=False)):
            if snapshot is None or not snapshot.holds(message, given):
                return at
        return min(len(messages), len(self._each))

    def _all_hold(self, messages: list[BaseMessage]) -> bool:
        """The same as `Snapshot.holds` for each message, but computed in C."""
        if not self._is_plain:
            return False
        fields = [*map(_fields_of, messages)]
        return (
            [*map(type, messages)] == self._kinds
            and fields == self._fields
            and [*map(type, chain.from_iterable(map(dict.values, fields)))] == self._types
            and [*map(_extra_of, messages)] == self._extras
            and all(_is_same(fields[at][key], value) for at, key, value in self._nested)
        )


@contextmanager
def collecting_later(count: int) -> Generator[None]:
    """Pause the garbage collector while many objects are created, none of which is garbage."""
    if count < _MANY or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def taken(message: BaseMessage) -> Snapshot | None:
    """Take a snapshot of a message; None if it contains anything other than plain data."""
    try:
        return Snapshot(message)
    except (_NotPlain, AttributeError, ValueError):
        return None


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {_atom(key): _copied(member) for key, member in value.items()}
    if kind is list:
        return [_copied(item) for item in value]
    if kind is float:
        return value
    raise _NotPlain


def _atom(key: Any) -> Any:
    if type(key) not in _ATOMS:
        raise _NotPlain
    return key


def _is_same(a: Any, b: Any) -> bool:
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is dict:
        return len(a) == len(b) and all(
            key == other and type(key) is type(other) and _is_same(value, known)
            for (key, value), (other, known) in zip(a.items(), b.items(), strict=True)
        )
    if kind is list:
        return len(a) == len(b) and all(map(_is_same, a, b))
    if kind is float:
        return repr(a) == repr(b)  # distinguishes 0.0 from -0.0, and treats all NaN as equal
    return bool(a == b)
