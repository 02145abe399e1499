"""The interface that converts bytes of the layers above to text and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Form(Protocol):
    """Converts any bytes to one line of JSON and back."""

    def to_text(self, packed: bytes) -> bytes:
        """One JSON value without a line break."""
        ...

    def from_text(self, text: bytes) -> bytes:
        """The original bytes. `Damaged` if the text was not made by `to_text`."""
        ...

    def from_texts(self, texts: Sequence[bytes | memoryview]) -> list[bytes]:
        """The original bytes of each text. Faster than `from_text` for thousands of texts."""
        ...
