"""Map the names of threads and namespaces to names of folders.

The mapping is injective, even on file systems that ignore case or normalise accented letters. Lower case letters,
digits, `-`, `_` and `.` are kept. Every other byte of the name's UTF-8 becomes `%` and two lower case hex digits, as
`urllib.parse.unquote` reads them. A name that would be too long is shortened and followed by `~` and its sha256; no
other folder name contains `~`. The complete name is stored in the log.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

LOG: Final = "log.jsonl"
"""The file in a thread's folder that holds the whole thread."""
_LONGEST: Final = 120
_KEPT: Final = 48
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Device names on Windows, with any extension: a store must survive being copied there. Also the file that identifies a
# store, which is next to the folders of namespaces.
_TAKEN: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)|holdfast\.json(?:\..*new)?$")
_HALF_CODE: Final = re.compile(r"%.?$")


@lru_cache(maxsize=1024)
def folder_name(name: str) -> str:
    """The folder for a name."""
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
    """The name of a folder; None if the folder's name was shortened or is not valid."""
    if "~" in folder:
        return None
    try:
        name = "" if folder == "%" else unquote(folder, errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return name if folder_name(name) == folder else None
