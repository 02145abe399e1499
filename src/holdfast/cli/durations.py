"""Spans of time on the command line: 90, 90s, 45m, 12h, 30d, 2w."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

_FORM = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds(text: str) -> float:
    """For `ArgumentParser`: how many seconds a text says."""
    found = _FORM.fullmatch(text)
    if found is None or not (span := float(found[1]) * _SECONDS[found[2]]) < 1e12:
        raise ArgumentTypeError(f"{text!r} is no span of time; write 90s, 45m, 12h, 30d or 2w")
    return span
