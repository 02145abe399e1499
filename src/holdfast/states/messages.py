"""Messages in a form that most providers share. They are stored as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self, TypeAlias
from uuid import uuid4

import msgspec

from holdfast.states.calls import ToolCall

Role = Literal["system", "user", "assistant", "tool"]

_PER_TOKEN: Final = 4  # characters
_PER_FILE: Final = 1000  # tokens; providers count images by size, which a URL does not contain


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A text part of a message."""

    text: str


class Image(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="image"):
    """An image given by its URL, `data:` or `https:`. `detail` is a value of the provider: "low", "high", "auto"."""

    url: str
    detail: str | None = None


class File(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="file"):
    """An image or a document as bytes. A large one is stored once, however often it is saved."""

    data: bytes
    media_type: str
    name: str | None = None


Part: TypeAlias = Text | Image | File


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation. It is immutable; use `msgspec.structs.replace` to make a changed copy.

    An assistant message may have `tool_calls`; a tool message is the result of the call `tool_call_id`. `data` is for
    the application.

    >>> Message.user("Hello").text
    'Hello'
    """

    role: Role
    content: str | list[Part] = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    reasoning: str | None = None
    data: dict[str, Any] = {}
    id: str = msgspec.field(default_factory=lambda: str(uuid4()))
    at: datetime | None = msgspec.field(default_factory=lambda: datetime.now(UTC))

    @classmethod
    def system(cls, content: str | list[Part], **fields: Any) -> Self:
        return cls(role="system", content=content, **fields)

    @classmethod
    def user(cls, content: str | list[Part], *, images: Iterable[Image] = (), **fields: Any) -> Self:
        """Make a user message; images follow the content."""
        shown = list(images)
        if shown:
            said: list[Part] = [Text(content)] if isinstance(content, str) else list(content)
            content = [part for part in said if part != Text("")] + shown
        return cls(role="user", content=content, **fields)

    @classmethod
    def assistant(cls, content: str | list[Part] = "", *, tool_calls: Iterable[ToolCall] = (), **fields: Any) -> Self:
        return cls(role="assistant", content=content, tool_calls=list(tool_calls), **fields)

    @classmethod
    def tool(cls, call: ToolCall | str, content: str | list[Part], *, is_error: bool = False, **fields: Any) -> Self:
        """Make the message with the result of a call, given as the call or its id."""
        if isinstance(call, ToolCall):
            fields = {"tool_name": call.name, **fields}
        given = call.id if isinstance(call, ToolCall) else call
        return cls(role="tool", content=content, tool_call_id=given, is_error=is_error, **fields)

    @property
    def text(self) -> str:
        """The text of the message, without images and files."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def images(self) -> list[Image]:
        return [] if isinstance(self.content, str) else [part for part in self.content if isinstance(part, Image)]


def estimated_tokens(message: Message) -> int:
    """Estimate the tokens of a message: 1 per 4 characters, 1,000 per image or file, and 1 for the message.

    >>> estimated_tokens(Message.user("Hello world!"))
    4
    """
    written = len(message.text) + len(message.reasoning or "")
    for call in message.tool_calls:
        written += len(call.name) + (0 if call.arguments is None else len(str(call.arguments)))
    files = 0 if isinstance(message.content, str) else sum(not isinstance(part, Text) for part in message.content)
    return written // _PER_TOKEN + files * _PER_FILE + 1
