"""The checksum of a row of a database, for tests that forge rows."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec


def checksum_of(*fields: Any) -> int:
    return crc32(msgspec.msgpack.encode(fields))
