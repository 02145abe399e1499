"""How bytes that the layers above hand down become text: a store does not know, it is given."""

from __future__ import annotations

from typing import Protocol


class Form(Protocol):
    """Bytes to one line of JSON and back, for any bytes: what comes back is what was given."""

    def to_text(self, packed: bytes) -> bytes:
        """One JSON value without a line break."""
        ...

    def from_text(self, text: bytes) -> bytes:
        """The bytes. `Damaged` if the text was not made by `to_text`."""
        ...
