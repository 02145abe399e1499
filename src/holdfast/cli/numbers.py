"""Numbers on the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError


def count(text: str) -> int:
    """Parse a whole number, 0 or more, as a type for `ArgumentParser`."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)
