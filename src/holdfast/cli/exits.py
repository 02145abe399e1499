"""Exit codes, and errors as the command line writes them."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final

from holdfast.errors import Conflict, HoldfastError, InvalidArgument, LeaseHeld, LeaseLost, NotFound, StoreError


class Exit(enum.IntEnum):
    """The exit codes of every command. Scripts rely on them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    IN_DOUBT = 5
    INTERRUPTED = 130  # as shells report SIGINT
    UNREAD = 141  # as shells report SIGPIPE


_CODES: tuple[tuple[type[HoldfastError], Exit], ...] = (
    (InvalidArgument, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
    (LeaseHeld, Exit.CONFLICT),
    (LeaseLost, Exit.CONFLICT),
)


def exit_code(error: HoldfastError) -> Exit:
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.ERROR)


def message_of(error: HoldfastError) -> str:
    """Return the message of an error in terms of commands, with the reason that the system gave."""
    cause = error.__cause__
    message = worded(str(error))
    if isinstance(error, StoreError) and isinstance(cause, OSError) and cause.strerror:
        end = "." if message.endswith(".") else ""
        return f"{message.removesuffix('.')} ({cause.strerror}){end}"
    return message


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" for the known word closest to `word`, or "" if none is close."""
    import difflib  # noqa: PLC0415 - needed only after a typing error

    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


# -- Python calls in messages, replaced by the commands that do the same ----------------------------------------------

_SENTENCES: Final = (
    ("Call hf.undo(), or pass past_effects=True (--past-effects)", "Pass --past-effects to rewind anyway"),
    ("history() lists the others, and load() loads them", "`holdfast log` lists the others"),
    ("history() lists", "`holdfast log` lists"),
    ("Call latest() and try again", "Try again"),
    ("Call latest() to load it", "`holdfast show` shows it"),
    ("Open it with cipher=holdfast.Cipher(…), or set HOLDFAST_KEY", "Set HOLDFAST_KEY"),
    ("hf.settle(THREAD, NUMBER, NotDone())", "`holdfast settle THREAD NUMBER --not-done`"),
    ("Try again later, or pass wait=.", "Try again later."),
    ("Ask again later, or pass a longer wait=.", "Ask again later, or pass --wait."),
    ("or pass force=True if", "or pass --force if"),
    (
        "is in doubt and the run waits. Settle it with hf.settle.",
        "is in doubt and the run waits: see `holdfast inbox`.",
    ),
    ("hf.run with other guards resumes it", "a program with other guards can resume it"),
)
_VERBS: Final = {"run": "resume", "waiting": "inbox", "stuck": "inbox"}
_CALL: Final = re.compile(
    r"\bhf\.(acts|answer|backup|cancel|effects|erase|fingerprint|repair|rekey|release|run|settle|stuck|submit|threads|verify|waiting)\b"
    r"(?:\([^()]*\))?"
)
# Quoted text is a name, and is not replaced.
_NAMES: Final = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


def worded(message: str) -> str:
    """Return a message, or the reason of a run, with commands in place of Python calls."""
    parts = _NAMES.split(message)
    return "".join(part if at % 2 else _reworded(part) for at, part in enumerate(parts))


def _reworded(text: str) -> str:
    for python, command in _SENTENCES:
        text = text.replace(python, command)
    return _CALL.sub(lambda found: f"`holdfast {_VERBS.get(found[1], found[1])}`", text)
