"""Parts of messages, in the formats of the common providers: media, and instructions outside the messages."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.inspect import Piece, message_in

_TYPES: Final = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "output_image": "image",
    "image-url": "image",
    "audio": "audio",
    "input_audio": "audio",
    "output_audio": "audio",
    "audio-url": "audio",
    "video": "video",
    "video_url": "video",
    "video-url": "video",
    "document": "document",
    "document-url": "document",
    "file": "document",
    "input_file": "document",
    "binary": None,
    "media": None,
}
_INSIDE: Final = ("image_url", "video_url", "source", "file", "input_audio", "audio", "inlineData", "inline_data")
_GOOGLE: Final = ("inlineData", "inline_data", "fileData", "file_data")
_TYPE: Final = ("media_type", "mime_type", "mimeType")
_DATA: Final = ("data", "base64", "file_data")
_URI: Final = ("url", "uri", "fileUri", "file_uri", "file_url", "image_url", "video_url")
_FILE: Final = ("file_id", "fileId")
_DATA_URI: Final = re.compile(r"data:([^,;]*)(?:;[^,;]*)*?(;base64)?,", re.IGNORECASE)
_KINDS: Final = ("image", "audio", "video")
_SYSTEM: Final = ("system", "system_prompt", "system_instruction", "systemInstruction", "instructions")


class Media(msgspec.Struct, frozen=True, kw_only=True):
    """An image, audio, video or document: its bytes in base64, or where they are.

    One of `content`, `uri`, `file_id` is set. `modality` is "image", "audio", "video", "document" or "unknown".
    """

    modality: str
    mime_type: str | None
    content: str | None = None
    uri: str | None = None
    file_id: str | None = None

    @property
    def size(self) -> int | None:
        """The approximate number of bytes; None if the content is not included."""
        return None if self.content is None else len(self.content.rstrip("=")) * 3 // 4


def media_of(block: Any) -> Media | None:
    """The media in a block of a message; None if the block is something else."""
    if type(block) is not dict:
        return None
    kind = next((_text(block.get(key)) for key in ("type", "kind", "part_kind") if _text(block.get(key))), "")
    if kind not in _TYPES and not any(type(block.get(key)) is dict for key in _GOOGLE):
        return None
    found = list(_dicts(block))
    mime = _first(found, _TYPE) or (_sound(found) if _TYPES.get(kind) == "audio" else "")
    uri, file_id = _first(found, _URI), _first(found, _FILE)
    if block.get("source_type") == "id":
        file_id = file_id or _text(block.get("id"))
    content = _content(found)
    if content is None and uri:
        match = _DATA_URI.match(uri)
        if match:
            mime = mime or match[1]
            data = uri[match.end() :]
            content, uri = (data if match[2] else base64.b64encode(data.encode()).decode()), ""
    elif content is not None:
        match = _DATA_URI.match(content)  # the form of files in OpenAI's messages
        if match:
            mime, content = mime or match[1], content[match.end() :]
    media = Media(modality=_modality(_TYPES.get(kind), mime), mime_type=mime or None)
    if content is not None:
        return msgspec.structs.replace(media, content=content)
    if uri:
        return msgspec.structs.replace(media, uri=uri)
    return msgspec.structs.replace(media, file_id=file_id) if file_id else None


def _dicts(block: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    yield block
    for key in (*_INSIDE, *_GOOGLE):
        inside = block.get(key)
        if type(inside) is dict:
            yield inside


def _content(found: list[dict[Any, Any]]) -> str | None:
    for each in found:
        for key in _DATA:
            data = each.get(key)
            if type(data) is bytes:
                return base64.b64encode(data).decode()
            if type(data) is str and data:
                # Anthropic's documents may be plain text.
                return base64.b64encode(data.encode("utf-8", "replace")).decode() if _is_plain(each) else data
    return None


def _is_plain(source: dict[Any, Any]) -> bool:
    return source.get("type") == "text"


def _first(found: list[dict[Any, Any]], keys: tuple[str, ...]) -> str:
    return next((_text(each[key]) for each in found for key in keys if _text(each.get(key))), "")


def _sound(found: list[dict[Any, Any]]) -> str:
    named = next((_text(each.get("format")) for each in found if _text(each.get("format"))), "")
    return f"audio/{named}" if named else ""


def _modality(told: str | None, mime: str) -> str:
    major = mime.partition("/")[0].lower()
    if major in _KINDS:
        return major
    return told or ("document" if major in ("application", "text") else "unknown")


def _text(value: Any) -> str:
    return value if type(value) is str else ""


# -- instructions ------------------------------------------------------------------------------------------------------


def system_pieces(state: Any) -> list[Piece]:
    """The instructions outside the messages, in pieces."""
    given = next((state[key] for key in _SYSTEM if state.get(key)), None) if type(state) is dict else None
    if given is None:
        given = _prompt(state)
    if given is None:
        return []
    inside = given if type(given) is dict and "parts" in given else {"content": given}
    return [piece for piece in message_in({**inside, "role": "system"}).parts if piece[1] != ""]


def _prompt(state: Any) -> Any:
    """The prompt of a state of `holdfast.states`. In other states a `prompt` may mean anything, so it is ignored."""
    match state:
        case {"prompt": {"static": str(static), "dynamic": str(dynamic)}}:
            return [static, dynamic]
        case {"prompt": str(text), "budget": int(), "messages": list(), "id": str()}:
            return text
        case _:
            return None
