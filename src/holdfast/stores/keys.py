"""Wrapped keys: data keys of an encrypted store, each encrypted by a key of the user."""

from __future__ import annotations

import msgspec

from holdfast.errors import Conflict


class KeyRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A data key, encrypted by the user's key called `name`. The store does not have the user's key."""

    id: bytes
    name: str
    wrapped: bytes


def unreadable(id: bytes) -> KeyRow:
    """The placeholder in a listing for a record that cannot be read: it has no name and no wrapped key."""
    return KeyRow(id, "", b"")


def moved_on() -> Conflict:
    """The error for a stored key that is not the expected one."""
    return Conflict("the wrapped key was replaced or removed by another process; nothing was changed. Read it again.")
