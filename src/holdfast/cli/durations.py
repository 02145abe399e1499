"""Durations on the command line: 90, 90s, 45m, 12h, 30d, 2w."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

_FORM = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds(text: str) -> float:
    """Parse a duration into seconds, as a type for `ArgumentParser`."""
    found = _FORM.fullmatch(text)
    if found is None or not (span := float(found[1]) * _SECONDS[found[2]]) < 1e12:
        raise ArgumentTypeError(f"{text!r} is not a duration; write 90s, 45m, 12h, 30d or 2w")
    return span
