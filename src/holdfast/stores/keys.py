"""Wrapped keys: what a store keeps so that its content can be deciphered by whoever has the named keys."""

from __future__ import annotations

import msgspec

from holdfast.errors import Conflict


class KeyRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A data key, encrypted by the key `name`. A store neither has that one nor needs it."""

    id: bytes
    name: str
    wrapped: bytes


def unreadable(id: bytes) -> KeyRow:
    """What stands in a listing for a record that cannot be read: no key has this name, and nothing is wrapped."""
    return KeyRow(id, "", b"")


def moved_on() -> Conflict:
    """The error for a key that is not the expected one any more."""
    return Conflict("the wrapped key was changed or removed by somebody else; nothing was changed")
