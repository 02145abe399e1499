"""The keys a user gives: what they may be, and what is said when they are not."""

from __future__ import annotations

import base64
import sys

import pytest

from holdfast import Cipher, HoldfastError, InvalidArgument
from holdfast.errors import NotInstalled, WrongKey

KEY = bytes(range(32))


@pytest.mark.parametrize(
    "given",
    [
        KEY,
        KEY.hex(),
        base64.b64encode(KEY).decode(),
        base64.urlsafe_b64encode(KEY).decode().rstrip("="),
        lambda: KEY,
        KEY.hex,
    ],
)
def test_a_key_is_32_bytes_however_they_are_written(given: bytes) -> None:
    assert Cipher(keys={"k": given}, current="k").key("k") == KEY


@pytest.mark.parametrize("given", [b"short", "c2VjcmV0", "z" * 64, 7, None, KEY + b"x"])
def test_what_is_no_key_is_refused_without_being_shown(given: bytes) -> None:
    with pytest.raises(InvalidArgument, match="'mine' must be 32 bytes") as refused:
        Cipher(keys={"mine": given}, current="mine")
    assert "secret" not in str(refused.value)


def test_a_function_is_asked_when_the_key_is_needed() -> None:
    asked: list[str] = []

    def fetch() -> bytes:
        asked.append("yes")
        return b"too short"

    cipher = Cipher(keys={"k": fetch}, current="k")
    assert asked == []
    with pytest.raises(InvalidArgument, match="'k' must be 32 bytes"):
        cipher.key("k")


@pytest.mark.parametrize(
    ("keys", "current", "says"),
    [
        ({}, "k", "keys must be a dict"),
        ([KEY], "k", "keys must be a dict"),
        ({"k": KEY}, "other", "current must be the name"),
        ({"": KEY}, "", "the name of a key"),
        ({"a\nb": KEY}, "a\nb", "the name of a key"),
        ({1: KEY}, 1, "the name of a key"),
    ],
)
def test_wrong_arguments(keys: dict[str, bytes], current: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        Cipher(keys=keys, current=current)


def test_a_key_that_is_not_there_is_asked_for_by_name() -> None:
    with pytest.raises(WrongKey, match="'2025'"):
        Cipher(keys={"2026": KEY}, current="2026").key("2025")


def test_no_key_is_shown() -> None:
    shown = repr(Cipher(keys={"2026": KEY, "2025": bytes(32)}, current="2026"))
    assert shown == "Cipher(2026 and 1 more)"


def test_keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    assert Cipher.from_environment() is None
    monkeypatch.setenv("HOLDFAST_KEY", KEY.hex())
    alone = Cipher.from_environment()
    assert alone is not None
    assert (alone.current, alone.key("default")) == ("default", KEY)
    monkeypatch.setenv("HOLDFAST_KEY", f"new:{KEY.hex()}, old:{bytes(32).hex()}")
    both = Cipher.from_environment()
    assert both is not None
    assert (both.current, both.key("old")) == ("new", bytes(32))
    monkeypatch.setenv("HOLDFAST_KEY", "not a key")
    with pytest.raises(HoldfastError, match="must be 32 bytes"):
        Cipher.from_environment()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(NotInstalled, match=r"holdfast\[crypto\]"):
        Cipher(keys={"k": KEY}, current="k")
