"""How bytes that the layers above hand down become text: a store does not know, it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Form(Protocol):
    """Bytes to one line of JSON and back, for any bytes: what comes back is what was given."""

    def to_text(self, packed: bytes) -> bytes:
        """One JSON value without a line break."""
        ...

    def from_text(self, text: bytes) -> bytes:
        """The bytes. `Damaged` if the text was not made by `to_text`."""
        ...

    def from_texts(self, texts: Sequence[bytes | memoryview]) -> list[bytes]:
        """The bytes of each: thousands at once cost less than one by one."""
        ...
