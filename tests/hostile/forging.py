"""Changing one thing in a record, so that it stays a record: what somebody would write who knows the format."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from tests.hostile.texts import TEXTS

NUMBERS = (0, 1, -1, 2, 255, 2**31, 2**32 - 1, 2**53, 2**63 - 1, -(2**63), 2**64 - 1)
_HUGE = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff")  # of a list, a dict, of bytes
_BYTES = (b"", b"\0", b"\xc1" * 40, b"\x91" * 3000, *_HUGE)
_SHORT = tuple(text for text in TEXTS if len(text) < 1000)


def forged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes with something changed: what they are encoded from if they are, else themselves."""
    if rng.random() < 0.7:
        try:
            return msgspec.msgpack.encode(forged_value(msgspec.msgpack.decode(data), rng))
        except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError, TypeError):
            pass
    at = rng.randrange(len(data) + 1)
    match rng.randrange(4):
        case 0:
            return rng.choice(_BYTES)
        case 1:
            return data[:at]
        case 2:
            return data[:at] + rng.choice(_BYTES) + data[at:]
        case _:
            return data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]


def forged_value(value: Any, rng: random.Random) -> Any:
    """Plain data with one thing in it changed to something else, of its type or of another."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        changed = dict(value)
        key = rng.choice(list(changed))
        match rng.randrange(5):
            case 0:
                del changed[key]
            case 1:
                changed[rng.choice(_SHORT)] = changed.pop(key)
            case _:
                changed[key] = forged_value(changed[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        items = list(value)
        at = rng.randrange(len(items))
        match rng.randrange(5):
            case 0:
                del items[at]
            case 1:
                items.insert(at, items[at])
            case _:
                items[at] = forged_value(items[at], rng)
        return items
    if isinstance(value, bytes) and rng.random() < 0.8:
        return forged_bytes(value, rng)
    if isinstance(value, Ext) and rng.random() < 0.8:
        code = value.code if rng.random() < 0.5 else rng.randrange(128)
        return Ext(code, forged_bytes(bytes(value.data), rng))
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.8:
        return rng.choice((*NUMBERS, value + 1))
    return rng.choice((None, True, *NUMBERS, 1.5, float("nan"), b"", b"\xff", [], {}, [[]] * 40, {"$raw": ""}, *_SHORT))
