"""Talk: what a person reads beside the data. It goes to stderr, so that stdout can be piped."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def say(line: str) -> None:
    """One line on stderr, in one write: several threads may talk. Who closed stderr wants to hear nothing."""
    if sys.stderr is None:
        return
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message that asks whether a known word was meant; empty if none is near."""
    import difflib  # noqa: PLC0415 - for those who mistyped

    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
