"""Continuum's checksum: SHA-256 of its JSON with sorted keys and without blanks, the two members about it left out.

It was taken of the same texts of numbers that the file has, and so numbers are compared as texts here. Continuum
itself reads them and writes them anew, and its JSON library may read a fraction as the one beside it: then Continuum
refuses a checkpoint that is whole.
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
_LARGEST: Final = 308  # power of ten that a float can hold
_EXPONENT_MAX: Final = 100_000


class Checksum:
    """The checksum in a file of Continuum's, held against what the file says. `text` is known to be JSON, an object."""

    def __init__(self, text: str) -> None:
        self._fractions: set[str] = set()
        self._mark = os.urandom(8).hex()
        try:
            members: dict[str, Any] = json.loads(text, parse_float=self._marked)
            self._stored = members.pop(CHECKSUM, None)
            self._version = members.pop(VERSION, None)
            # With marks, since a number is to be written as it was, and json writes each float its own way.
            self._sorted = json.dumps(members, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        except RecursionError:
            raise Unusable("it is nested too deeply") from None

    @property
    def version(self) -> object:
        return self._version

    def problem(self) -> str | None:
        """What is wrong with it; None if it fits."""
        if not isinstance(self._stored, str):
            return "it has no checksum"
        if self._stored.lower() in (self._digest(str), self._digest(_as_rust_writes)):
            return None
        return "its checksum does not fit: it is not what was written"

    def is_refused_there(self) -> bool:
        """Whether Continuum reads one of its numbers as another, and so finds another checksum."""
        return any(_as_serde_reads(fraction) != float(fraction) for fraction in self._fractions)

    def _marked(self, fraction: str) -> str:
        self._fractions.add(fraction)
        return f"{self._mark}{fraction}"

    def _digest(self, spell: Callable[[str], str]) -> str:
        pattern = rf'"{self._mark}([-+.0-9eE]+)"'
        canonical = re.sub(pattern, lambda found: spell(found[1]), self._sorted) if self._fractions else self._sorted
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _as_rust_writes(fraction: str) -> str:
    """A float as serde_json writes it: `1e-7` and `1e16`, where Python has `1e-07` and `1e+16`; `0.00001` in full."""
    text = repr(float(fraction))
    digits, _, exponent = text.partition("e")
    if not exponent:
        return text
    if int(exponent) == -5:
        sign, figures = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
        return f"{sign}0.0000{figures.replace('.', '')}"
    return f"{digits}e{int(exponent)}"


def _as_serde_reads(fraction: str) -> float:
    """A float as serde_json reads it where it was not built to be exact: figures, then one product or quotient."""
    found = _PARTS.fullmatch(fraction)
    if found is None:
        return float(fraction)
    whole, behind, exponent = found[1], found[2] or "", int(found[3] or 0)
    figures = 0
    for place, figure in enumerate(whole + behind):
        if figures * 10 + int(figure) >= _U64:
            exponent += max(len(whole) - place, 0)  # figures that it has no room for are left out
            break
        figures = figures * 10 + int(figure)
        exponent -= place >= len(whole)
    value = float(figures)
    exponent = max(-_EXPONENT_MAX, min(exponent, _EXPONENT_MAX))
    while exponent < -_LARGEST and value:
        value /= 1e308
        exponent += _LARGEST
    if exponent > _LARGEST:
        return float(fraction)  # it refuses that, and so do we
    value = value * float(f"1e{exponent}") if exponent >= 0 else value / float(f"1e{-exponent}")
    return -value if fraction.startswith("-") else value
