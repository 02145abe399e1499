"""Suggestions for mistyped names ("did you mean …?")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.errors import NotFound
from holdfast.handle import Holdfast
from holdfast.stores.contract import ThreadRow
from holdfast.text import quoted
from holdfast.threads.scan import thread_named
from holdfast.threads.thread import checked_name

_LOOKED_AT: Final = 1000  # names to compare; more would be slow
_CUT: Final = (1, 2, 3)  # characters to drop at the end of a name: names differ there, so most mistakes are there
_PREFIXES: Final = (6, 3, 1, 0)


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known words closest to a word, best first; empty if none is close."""
    import difflib  # noqa: PLC0415 - needed only after a typing error

    return difflib.get_close_matches(word, list(known), n=most)


def nearest_threads(hf: Holdfast, name: str, most: int = 3) -> list[str]:
    """Return thread names similar to a name, searched among those with a common prefix."""
    store = hf.context.store
    for length in (*(len(name) - cut for cut in _CUT), *_PREFIXES):
        if 0 <= length < len(name):
            rows = store.threads(prefix=name[:length], after=None, limit=_LOOKED_AT)
            found = nearest(name, (row.name for row in rows), most)
            if found:
                return found
    return []


def existing(hf: Holdfast, name: str) -> ThreadRow:
    """Return the thread of this name. Raises NotFound, with a suggestion, if there is none."""
    hf.context.check_open()
    checked_name(name)
    row = thread_named(hf.context.store, name)
    if row is None:
        raise NotFound(f"there is no thread {quoted(name)}{_did_you_mean(hf, name)}")
    return row


def _did_you_mean(hf: Holdfast, name: str) -> str:
    found = nearest_threads(hf, name, most=1)
    return f"; did you mean {quoted(found[0])}?" if found else ""
