"""A system prompt in two parts: what stays, which a provider may cache, and what changes from call to call."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from holdfast.states.messages import Part, Text

BOUNDARY: Final = "\n<!-- what follows changes -->\n"


class Prompt(msgspec.Struct, frozen=True):
    """A system prompt: `static` first, then `dynamic`.

    >>> Prompt("You are a librarian. ", "It is Monday.").text
    'You are a librarian. It is Monday.'
    """

    static: str = ""
    dynamic: str = ""

    @classmethod
    def split(cls, text: str, boundary: str = BOUNDARY) -> Prompt:
        """A text with a boundary in it. Without one, all of it may change."""
        static, found, dynamic = text.partition(boundary)
        return cls(static, dynamic) if found else cls("", text)

    @property
    def text(self) -> str:
        """All of it, as the model reads it."""
        return self.static + self.dynamic

    @property
    def parts(self) -> list[Part]:
        """Both as parts of a message, for providers that are told where what they may cache ends."""
        return [Text(each) for each in (self.static, self.dynamic) if each]

    @property
    def digest(self) -> str:
        """Of what stays: the same as long as that is."""
        return hashlib.sha256(self.static.encode("utf-8", "surrogatepass")).hexdigest()

    def with_dynamic(self, dynamic: str) -> Prompt:
        """The same with another part that changes."""
        return Prompt(self.static, dynamic)
