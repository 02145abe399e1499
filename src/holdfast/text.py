"""Text for people: names quoted for messages."""

from __future__ import annotations


def shown(name: str) -> str:
    """A name for a message: quoted, control and bidi characters escaped, not endless."""
    return ascii(name if len(name) <= 80 else f"{name[:77]}...")
