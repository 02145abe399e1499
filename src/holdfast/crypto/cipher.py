"""`Cipher`: the encryption keys that the user provides, by name."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.errors import InvalidArgument, NotInstalled, WrongKey

Key = bytes | str | Callable[[], bytes | str]

KEY_BYTES: Final = 32
_VARIABLE: Final = "HOLDFAST_KEY"
_NAME_MAX: Final = 200


class Cipher:
    """The keys of an encrypted store: `holdfast.open(url, cipher=Cipher(keys={"2026-11": key}, current="2026-11"))`.

    A key is 32 bytes, or their base64 or hex form, or a function that returns one of these. The function is called when
    the key is first needed. New data keys are wrapped by the `current` key. The other keys only decrypt, until
    `hf.rekey()` has wrapped all data keys with the current one. Raises `InvalidArgument` if a key is not valid or
    `current` is not one of the names, `NotInstalled` without the extra "crypto".

    >>> Cipher(keys={"2026-11": bytes(32)}, current="2026-11")
    Cipher(2026-11)
    """

    def __init__(self, keys: Mapping[str, Key], current: str) -> None:
        _require_package()
        if not isinstance(keys, Mapping) or not keys:
            raise InvalidArgument("keys must be a dict of names and keys")
        for name in keys:
            if type(name) is not str or not 0 < len(name) <= _NAME_MAX or not name.isprintable():
                raise InvalidArgument(f"the name of a key must be a printable string of 1 to {_NAME_MAX} characters")
        if current not in keys:
            raise InvalidArgument("current must be the name of one of the keys")
        self.current = current
        self._keys = dict(keys)
        for name, key in self._keys.items():
            if not callable(key):
                _checked(name, key)

    @classmethod
    def from_environment(cls) -> Cipher | None:
        """The keys in $HOLDFAST_KEY, or None if it is not set.

        The format is `name:key`, with further keys after commas; the first is the current one. A key without a name is
        called "default".
        """
        text = os.environ.get(_VARIABLE)
        if not text:
            return None
        keys: dict[str, Key] = {}
        for part in text.split(","):
            name, colon, key = part.strip().rpartition(":")
            name = name if colon else "default"
            if name in keys:
                raise InvalidArgument(f"{_VARIABLE} has two keys named {name!r}; use different names")
            keys[name] = key
        return cls(keys, next(iter(keys)))

    def key(self, name: str) -> bytes:
        """The key with this name. `WrongKey` if the cipher does not have it."""
        found = self._keys.get(name)
        if found is None:
            raise WrongKey(
                f"the store needs the key named {name!r}, which this cipher does not have; nothing was changed. "
                "Add it to `keys`."
            )
        return _checked(name, found() if callable(found) else found)

    def __repr__(self) -> str:
        others = len(self._keys) - 1
        return f"Cipher({self.current}{f' and {others} more' if others else ''})"


def _checked(name: str, key: object) -> bytes:
    if isinstance(key, str):
        key = _decoded(key)
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        # The value may be most of a key, so it is not shown.
        raise InvalidArgument(f"the key named {name!r} must be {KEY_BYTES} bytes, or their base64 or hex form")
    return key


def _decoded(text: str) -> bytes | None:
    try:
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text)
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None


def _require_package() -> None:
    try:
        import cryptography  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport] - only whether it is there
    except ImportError as cause:
        raise NotInstalled(
            'encryption needs the extra "crypto"; nothing was opened. Run: pip install "holdfast[crypto]".'
        ) from cause
