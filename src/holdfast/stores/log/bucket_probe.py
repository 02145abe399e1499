"""Open a prefix of a bucket as a store, and refuse servers on which conditional writes do not hold.

Some servers accept the headers of a conditional write and ignore them. On such a server two writers would both believe
that they wrote the next group, and one of them would lose its work without notice.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.errors import NotAStore, StoreError
from holdfast.stores import rules
from holdfast.stores.log.objects import Objects, Taken
from holdfast.types import UNREADABLE

FORMAT: Final = 1
MARKER: Final = "holdfast.json"
_PROBES: Final = "probes"
_PROBE: Final = re.compile(rf"{_PROBES}/[0-9a-f]{{16}}-[a-d]")


class BucketMarker(msgspec.Struct, frozen=True):
    """The content of `holdfast.json`."""

    holdfast: str
    format: int
    id: str  # the id of the store, and of its clock


def open_prefix(objects: Objects) -> str:
    """Make sure that the prefix is a store, create one if it is empty, and return the store's id.

    `NotAStore` or `NewerFormat`, leaving everything unchanged, if it is something else. `StoreError` if the server
    ignores conditions.
    """
    found = objects.get(MARKER)
    # Other processes may be probing, or may have died while they did.
    strangers = [] if found else [each.key for each in objects.page("") if not _PROBE.fullmatch(each.key)]
    if strangers and objects.get(MARKER) is None:
        raise NotAStore(
            f"{objects.place}: there are objects under the prefix, but not a Holdfast store; nothing was changed. Name "
            "another prefix."
        )
    require_conditions(objects)
    if found is None:
        made = msgspec.json.encode(BucketMarker("bucket", FORMAT, secrets.token_hex(8))) + b"\n"
        with suppress(Taken):  # another process was faster
            objects.create(MARKER, made)
        found = objects.get(MARKER)
    return _recognised(objects.place, b"" if found is None else found.data)


def _recognised(place: str, data: bytes) -> str:
    try:
        marker = msgspec.json.decode(data, type=BucketMarker)
    except UNREADABLE as error:
        raise NotAStore(f"{place}: the object {MARKER} is not that of a store; nothing was changed") from error
    if marker.holdfast != "bucket" or marker.format < 1:
        raise NotAStore(f"{place}: the object {MARKER} is not that of a store in a bucket; nothing was changed")
    if marker.format > FORMAT:
        raise rules.newer_format(place, marker.format, FORMAT)
    return marker.id


def require_conditions(objects: Objects) -> None:
    """`StoreError` unless the server keeps conditions. The objects that this writes are deleted."""
    unique = secrets.token_hex(8)
    # Created in another order than that of their names.
    key, *others = (f"{_PROBES}/{unique}-{each}" for each in "cadb")
    try:
        if problem := _problem(objects, key, others):
            raise StoreError(
                f"{objects.place}: the server {problem}, so that writers would overwrite each other without notice; "
                "nothing was stored. Use a server with conditional writes (If-None-Match, If-Match), such as Amazon "
                "S3, Google Cloud Storage or Azure Blob Storage."
            )
    finally:
        objects.delete([key, *others])


def _problem(objects: Objects, key: str, others: list[str]) -> str:
    """A description of the condition that the server does not keep; empty if it keeps all."""
    first = objects.create(key, b"first")
    if not _is_taken(lambda: objects.create(key, b"second")):
        return "accepted two conditional creations of one object"
    second = objects.replace(key, b"third", first)
    if not _is_taken(lambda: objects.replace(key, b"fourth", first)):
        return "accepted a conditional write to an object that had changed"
    found = objects.get(key)
    if found is None or found.data != b"third" or found.version.identity != second.identity:
        return "did not return what was written last"
    for other in others:
        objects.create(other, b"first")
    names = objects.names(_PROBES)
    if not {key, *others} <= set(names) or names != sorted(names):
        return "did not list all objects in the order of their keys"
    return ""


def _is_taken(write: Callable[[], object]) -> bool:
    try:
        write()
    except Taken:
        return True
    return False
