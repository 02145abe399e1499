"""Messages to the user, on stderr, so that stdout holds only data."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def say(line: str) -> None:
    """Write one line to stderr, in one call because several threads may write. Does nothing if stderr is closed."""
    if sys.stderr is None:
        return
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" for the known word closest to `word`, or "" if none is close."""
    import difflib  # noqa: PLC0415 - needed only after a typing error

    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
