"""Where a file of cortex checkpoints goes on behind one that cannot be read.

States may hold what looks like a checkpoint themselves. So what is found behind a damage is believed only if the file
can be followed from there to its end; else it may be a part of a state, and nothing is made of it.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto
from typing import Final, NamedTuple

_TEXT: Final = r'"(?:[^"\\]++|\\.)*+"'
_KEY: Final = rf"{_TEXT}\s*:\s*\["

_NEXT: Final = re.compile(r'\{\s*"metadata"\s*:')
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\]]', re.DOTALL)
_BLANK: Final = re.compile(r"\s*+\Z")
_PAIRS: Final = {"{": "}", "[": "]"}
_AGAIN: Final = 4  # times that all of a file may be looked at to find where it goes on
_A_TRY: Final = 1000  # characters that each try counts for at least

# Only where something ends is asked for.
_decoder: Final = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=len)


class Shape(NamedTuple):
    """How items stand in a file: what is before the first, between two, and behind the last."""

    opening: re.Pattern[str]
    between: re.Pattern[str]
    closing: re.Pattern[str]

    def begin(self, text: str) -> int | None:
        """Where the first may be; None if this is not how the file begins."""
        found = self.opening.match(text)
        return None if found is None else found.end()

    def following(self, text: str, place: int) -> int:
        """Where the next item begins."""
        found = self.between.match(text, place)
        return place if found is None else found.end()

    def is_end(self, text: str, place: int) -> bool:
        return self.closing.match(text, place) is not None


def _shape(opening: str, between: str, closing: str) -> Shape:
    return Shape(*(re.compile(each, re.DOTALL) for each in (opening, between, rf"{between}{closing}\s*+\Z")))


ARRAY: Final = _shape(r"\s*+\[", r"[\s,]*+", r"\]")
LOOSE: Final = _shape("", r"[\s,]*+", "")
"""One behind the other; or a single one."""
TABLE: Final = _shape(rf'\s*+\{{\s*+(?!"metadata"){_KEY}', rf"[\s,]*+(?:\]\s*+,\s*+{_KEY}[\s,]*+)*+", r"\]\s*+\}")
"""An object with a list for each thread."""


class _Found(NamedTuple):
    """What is known of an item: where it ends, by its brackets if it is no JSON, and where it ceases to be JSON.

    `is_cut`: it is JSON up to the end of the file, so that all of that is a part of it.
    """

    end: int | None
    error: int
    is_cut: bool = False


class _Way(Enum):
    END = auto()
    CUT = auto()
    BROKEN = auto()


class Damage:
    """The damaged places of one file, which are asked for from its beginning to its end."""

    def __init__(self, text: str, shape: Shape) -> None:
        self._text = text
        self._shape = shape
        self._is_sure = False  # whether all that is left was followed to the end
        self._left = _AGAIN * len(text) + 1000 * _A_TRY

    def behind(self, start: int) -> tuple[int | None, bool]:
        """Where the file goes on behind the item that begins there, None if nowhere.

        And whether something was passed over that looks like a checkpoint, and may be one.
        """
        found = self._look(start)
        if found.is_cut:
            return None, _NEXT.search(self._text, start + 1) is not None
        if found.end is not None and (self._is_sure or self._follow(found.end)[0] is not _Way.BROKEN):
            self._is_sure = True
            return found.end, False
        # Its brackets cannot be counted. What is before the error is a part of it for sure.
        place, is_unsure = max(found.error - 1, start + 1), False
        while (following := _NEXT.search(self._text, place)) is not None:
            if self._left < 0:
                return None, True
            way, broken = self._follow(following.start())
            if way is _Way.END:
                self._is_sure = True
                return following.start(), is_unsure
            is_unsure = True
            place = max(broken, following.end())
        return None, is_unsure

    def _follow(self, place: int) -> tuple[_Way, int]:
        """Go from item to item, as far as they are some, and where that was."""
        begun, text = place, self._text
        try:
            while not self._shape.is_end(text, place):
                start = self._shape.following(text, place)
                if start == len(text):
                    return _Way.CUT, start
                found = self._look(start)
                if found.is_cut:
                    return _Way.CUT, start
                if found.end is None:
                    return _Way.BROKEN, start
                place = found.end
            return _Way.END, place
        finally:
            self._left -= place - begun + _A_TRY

    def _look(self, start: int) -> _Found:
        text = self._text
        if text[start] != "{":
            return _Found(None, start)
        try:
            return _Found(_decoder.raw_decode(text, start)[1], start)
        except json.JSONDecodeError as error:
            place = error.pos
            self._left -= place - start
            if error.msg.startswith("Unterminated") or _BLANK.match(text, place):
                return _Found(None, place, is_cut=True)
        except RecursionError:
            place = start
        return _Found(self._closed(start), place)

    def _closed(self, start: int) -> int | None:
        """Where the brackets of an item are closed; None if they do not fit."""
        expected: list[str] = []
        end, is_fitting = start, True
        for token in _TOKEN.finditer(self._text, start):
            what, end = self._text[token.start()], token.end()
            if what in _PAIRS:
                expected.append(_PAIRS[what])
            elif what != '"':
                is_fitting = expected.pop() == what
            if not expected or not is_fitting:
                break
        self._left -= end - start
        return end if is_fitting and not expected else None
