"""Messages for people at a terminal: where an error says what to call in Python, they are told which verb to give."""

from __future__ import annotations

import re
from typing import Final

_SAID: Final = (
    ("hf.undo what can be undone, or pass past_effects=True (--past-effects)", "say --past-effects if that is known"),
    ("load() others by history()", "`holdfast log` lists the others"),
    ("history() lists", "`holdfast log` lists"),
    ("open it with cipher=holdfast.Cipher(…), or set HOLDFAST_KEY", "set HOLDFAST_KEY"),
    ("hf.settle(NotDone()) lets it be called", "`holdfast settle --not-done` lets it be called"),
    ("run a check to see what is hurt", "`holdfast verify` shows what is hurt"),
    ("hf.run with other guards resumes it", "a program with other guards resumes it"),
)
_VERBS: Final = {"run": "resume"}
_CALL: Final = re.compile(
    r"\bhf\.(answer|backup|cancel|effects|erase|mark|repair|rekey|run|settle|stuck|submit|threads|verify|waiting)\b"
    r"(?:\([^()]*\))?"
)
# Names stand in quotation marks: whatever they look like, they stay.
_NAMES: Final = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


def worded(message: str) -> str:
    """A message, or the reason that a run gives, in terms of the command line."""
    parts = _NAMES.split(message)
    return "".join(part if at % 2 else _reworded(part) for at, part in enumerate(parts))


def _reworded(text: str) -> str:
    for said, instead in _SAID:
        text = text.replace(said, instead)
    return _CALL.sub(lambda found: f"`holdfast {_VERBS.get(found[1], found[1])}`", text)
