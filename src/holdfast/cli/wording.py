"""Replace the Python calls in error messages by the commands that do the same."""

from __future__ import annotations

import re
from typing import Final

_SAID: Final = (
    ("Call hf.undo(), or pass past_effects=True (--past-effects)", "Pass --past-effects to rewind anyway"),
    ("history() lists the others, and load() loads them", "`holdfast log` lists the others"),
    ("history() lists", "`holdfast log` lists"),
    ("Call latest() and try again", "Try again"),
    ("Call latest() to load it", "`holdfast show` shows it"),
    ("Open it with cipher=holdfast.Cipher(…), or set HOLDFAST_KEY", "Set HOLDFAST_KEY"),
    ("hf.settle(THREAD, NUMBER, NotDone())", "`holdfast settle THREAD NUMBER --not-done`"),
    ("Try again later, or pass wait=.", "Try again later."),
    ("or pass force=True if", "or pass --force if"),
    ("hf.run with other guards resumes it", "a program with other guards can resume it"),
)
_VERBS: Final = {"run": "resume"}
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
    for said, instead in _SAID:
        text = text.replace(said, instead)
    return _CALL.sub(lambda found: f"`holdfast {_VERBS.get(found[1], found[1])}`", text)
