"""Verify Continuum's checksum: the SHA-256 of the JSON with sorted keys and no whitespace, without its own two members.

The checksum covers numbers exactly as they are written in the file, so they are kept as text here. Continuum itself
parses them and writes them again. Its JSON library may round a float to a neighbouring one; Continuum then rejects an
intact checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from typing import Any, Final

from holdfast.importers.frame import Unusable

CHECKSUM: Final = "_checksum"
VERSION: Final = "_version"
KNOWN: Final = "1.0"

_PARTS: Final = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_U64: Final = 2**64
_LARGEST: Final = 308  # the largest power of ten that fits a float
_EXPONENT_MAX: Final = 100_000


class Checksum:
    """The checksum in a file of Continuum. `text` must be a valid JSON object."""

    def __init__(self, text: str) -> None:
        self._fractions: set[str] = set()
        self._mark = os.urandom(8).hex()
        try:
            members: dict[str, Any] = json.loads(text, parse_float=self._marked)
            self._stored = members.pop(CHECKSUM, None)
            self._version = members.pop(VERSION, None)
            # Floats are marked strings here, because json would not write them as they are in the file.
            self._sorted = json.dumps(members, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        except RecursionError:
            raise Unusable("it is nested too deeply") from None

    @property
    def version(self) -> object:
        return self._version

    def problem(self) -> str | None:
        """The problem with the checksum; None if it matches."""
        if not isinstance(self._stored, str):
            return "it has no checksum"
        if self._stored.lower() in (self._digest(str), self._digest(_as_rust_writes)):
            return None
        return "its checksum does not match: the file was changed after it was written"

    def is_refused_there(self) -> bool:
        """Whether Continuum reads one of the numbers inexactly and so computes a different checksum."""
        return any(_as_serde_reads(fraction) != float(fraction) for fraction in self._fractions)

    def _marked(self, fraction: str) -> str:
        self._fractions.add(fraction)
        return f"{self._mark}{fraction}"

    def _digest(self, spell: Callable[[str], str]) -> str:
        pattern = rf'"{self._mark}([-+.0-9eE]+)"'
        canonical = re.sub(pattern, lambda found: spell(found[1]), self._sorted) if self._fractions else self._sorted
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _as_rust_writes(fraction: str) -> str:
    """Write a float as serde_json does: `1e-7` and `1e16` instead of Python's `1e-07` and `1e+16`; `0.00001`."""
    text = repr(float(fraction))
    digits, _, exponent = text.partition("e")
    if not exponent:
        return text
    if int(exponent) == -5:
        sign, figures = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
        return f"{sign}0.0000{figures.replace('.', '')}"
    return f"{digits}e{int(exponent)}"


def _as_serde_reads(fraction: str) -> float:
    """Read a float as serde_json does without its exact mode: the digits, then one multiplication or division."""
    found = _PARTS.fullmatch(fraction)
    if found is None:
        return float(fraction)
    whole, behind, exponent = found[1], found[2] or "", int(found[3] or 0)
    figures = 0
    for place, figure in enumerate(whole + behind):
        if figures * 10 + int(figure) >= _U64:
            exponent += max(len(whole) - place, 0)  # it drops digits that do not fit 64 bits
            break
        figures = figures * 10 + int(figure)
        exponent -= place >= len(whole)
    value = float(figures)
    exponent = max(-_EXPONENT_MAX, min(exponent, _EXPONENT_MAX))
    while exponent < -_LARGEST and value:
        value /= 1e308
        exponent += _LARGEST
    if exponent > _LARGEST:
        return float(fraction)  # serde_json rejects numbers of this size
    value = value * float(f"1e{exponent}") if exponent >= 0 else value / float(f"1e{-exponent}")
    return -value if fraction.startswith("-") else value
