"""Names of threads and namespaces as names of folders.

The mapping is injective, also where a file system takes upper and lower case for the same, or one form of an accented
letter for another: only lower case letters, digits, `-`, `_` and `.` stand for themselves, every other byte of the
name's UTF-8 is `%` and two lower case hex digits. So `urllib.parse.unquote` reads it. A name that would get too long
is cut, and told by its sha256 behind a `~`, which is in no other. The name itself is stored inside.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

LOG: Final = "log.jsonl"
"""The file in a thread's folder that has all of it."""
_LONGEST: Final = 120
_KEPT: Final = 48
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Devices on Windows, whatever follows a dot: a folder that is copied there must arrive. And the file that says what a
# store is, beside which the folders of namespaces lie.
_TAKEN: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)|holdfast\.json(?:\..*new)?$")
_HALF_CODE: Final = re.compile(r"%.?$")


@lru_cache(maxsize=1024)
def folder_name(name: str) -> str:
    """The folder of a name."""
    data = name.encode("utf-8", "surrogatepass")
    codes = [chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in data]
    if codes:
        for at in {0, len(codes) - 1}:
            if codes[at] == "." or (at == 0 and codes[at] == "-"):
                codes[at] = f"%{ord(codes[at]):02x}"
    encoded = "".join(codes) or "%"
    if _TAKEN.match(encoded):
        encoded = f"%{ord(encoded[0]):02x}{encoded[1:]}"
    if len(encoded) <= _LONGEST:
        return encoded
    return f"{_HALF_CODE.sub('', encoded[:_KEPT])}~{hashlib.sha256(data).hexdigest()}"


def name_of(folder: str) -> str | None:
    """The name that has this folder; None if the folder does not tell, or is of no name."""
    if "~" in folder:
        return None
    try:
        name = "" if folder == "%" else unquote(folder, errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return name if folder_name(name) == folder else None
