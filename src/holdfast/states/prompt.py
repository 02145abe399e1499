"""A system prompt in two parts: a static part, which a provider may cache, and one that changes from call to call."""

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
        """Split a text at `boundary`. Without a boundary all of it is dynamic."""
        static, found, dynamic = text.partition(boundary)
        return cls(static, dynamic) if found else cls("", text)

    @property
    def text(self) -> str:
        """Both parts as one text."""
        return self.static + self.dynamic

    @property
    def parts(self) -> list[Part]:
        """Both parts as message parts, for providers with a cache marker after the static part."""
        return [Text(each) for each in (self.static, self.dynamic) if each]

    @property
    def digest(self) -> str:
        """The SHA-256 of the static part."""
        return hashlib.sha256(self.static.encode("utf-8", "surrogatepass")).hexdigest()

    def with_dynamic(self, dynamic: str) -> Prompt:
        """Return a copy with another dynamic part."""
        return Prompt(self.static, dynamic)
