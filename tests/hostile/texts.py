"""The kept corpus of texts that somebody may use as a name, a label, a key or a filter."""

from __future__ import annotations

import json
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def _read() -> list[str]:
    # Halves of surrogate pairs are escapes in the file. What is [text, count] is that text, so often.
    listed = json.loads((CORPUS / "texts.json").read_text("utf-8"))
    return [entry if isinstance(entry, str) else entry[0] * entry[1] for entry in listed]


TEXTS = _read()
