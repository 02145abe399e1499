"""Text for people: names quoted for messages."""

from __future__ import annotations


def shown(name: str) -> str:
    """Quote a name for a message: control and bidirectional characters are escaped, and long names are cut."""
    return ascii(name if len(name) <= 80 else f"{name[:77]}...")
