"""Images, sounds and documents in messages: every provider's words for them are understood."""

from __future__ import annotations

import base64
from typing import Any

from holdfast.exporters.message_parts import Media, media_of
from tests.cases import for_each

DATA = base64.b64encode(b"bytes").decode()
PNG = f"data:image/png;base64,{DATA}"
URL = "https://example.com/a.png"


@for_each(
    ("block", "modality", "mime_type", "where"),
    [
        ({"type": "image_url", "image_url": {"url": PNG}}, "image", "image/png", "content"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, "image", None, "uri"),
        ({"type": "input_image", "image_url": URL}, "image", None, "uri"),
        ({"type": "input_image", "file_id": "file-1"}, "image", None, "file_id"),
        ({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}, "audio", "audio/wav", "content"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "document", None, "file_id"),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}},
            "document",
            "application/pdf",
            "content",
        ),
        ({"type": "input_file", "file_url": "https://example.com/a.pdf"}, "document", None, "uri"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
            "image",
            "image/png",
            "content",
        ),
        ({"type": "image", "source": {"type": "url", "url": URL}}, "image", None, "uri"),
        ({"type": "document", "source": {"type": "file", "file_id": "file-1"}}, "document", None, "file_id"),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "bytes"}},
            "document",
            "text/plain",
            "content",
        ),
        ({"inlineData": {"mimeType": "video/mp4", "data": DATA}}, "video", "video/mp4", "content"),
        ({"inline_data": {"mime_type": "image/png", "data": b"bytes"}}, "image", "image/png", "content"),
        ({"fileData": {"mimeType": "audio/mpeg", "fileUri": "gs://a/b"}}, "audio", "audio/mpeg", "uri"),
        (
            {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": DATA},
            "image",
            "image/png",
            "content",
        ),
        ({"type": "audio", "source_type": "id", "id": "file-1"}, "audio", None, "file_id"),
        ({"type": "image", "base64": DATA, "mime_type": "image/png"}, "image", "image/png", "content"),
        ({"kind": "image-url", "url": URL}, "image", None, "uri"),
        (
            {"kind": "binary", "media_type": "application/pdf", "data": b"bytes"},
            "document",
            "application/pdf",
            "content",
        ),
        ({"kind": "binary", "data": b"bytes"}, "unknown", None, "content"),
        ({"type": "file", "data": b"bytes", "media_type": "image/png"}, "image", "image/png", "content"),
        ({"type": "image_url", "image_url": {"url": "data:image/svg+xml,bytes"}}, "image", "image/svg+xml", "content"),
    ],
)
def test_what_it_is(block: Any, modality: str, mime_type: str | None, where: str) -> None:
    media = media_of(block)
    assert media is not None
    assert (media.modality, media.mime_type) == (modality, mime_type)
    found = {name: getattr(media, name) for name in ("content", "uri", "file_id") if getattr(media, name) is not None}
    assert list(found) == [where]
    if where == "content":
        assert base64.b64decode(found["content"], validate=True) == b"bytes"
        assert media.size == 5
    else:
        assert media.size is None


@for_each(
    "block",
    [
        None,
        3,
        "image",
        {},
        {"type": "text", "text": "image"},
        {"type": "image"},
        {"type": "image", "url": 3},
        ["image"],
    ],
)
def test_what_it_is_not(block: Any) -> None:
    assert media_of(block) is None


def test_something_is_known_only_by_what_it_says() -> None:
    assert media_of({"type": "media", "file_uri": "gs://x", "mime_type": "text/csv"}) == Media(
        modality="document", mime_type="text/csv", uri="gs://x"
    )
