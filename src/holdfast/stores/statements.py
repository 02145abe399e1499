"""Read the named statements of an SQL file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT: Final = re.compile(r"^--.*\n", re.MULTILINE)


def named(text: str) -> Mapping[str, str]:
    """The statements of an SQL text by name. Each statement starts with a line `-- name: …`."""
    parts = _NAME.split(text)
    return {name: _COMMENT.sub("", statement).strip() for name, statement in zip(parts[1::2], parts[2::2], strict=True)}
