"""Where Holdfast does not do what an earlier system does: what it has instead, or why there is nothing, and why so."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

Feature = tuple[str, str]


class _Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Features of a system, by their ids, and what there is to say of all of them."""

    system: str
    features: tuple[str, ...]
    reason: str


class _Reasons(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    otherwise: tuple[_Reason, ...]
    not_here: tuple[_Reason, ...]


def _by_feature(reasons: tuple[_Reason, ...]) -> dict[Feature, str]:
    pairs = [((each.system, feature), each.reason) for each in reasons for feature in each.features]
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("otherwise.toml says two things of one feature")
    return found


_STORED: Final = msgspec.convert(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")), type=_Reasons, strict=True
)

OTHERWISE: Final[Mapping[Feature, str]] = _by_feature(_STORED.otherwise)
NOT_HERE: Final[Mapping[Feature, str]] = _by_feature(_STORED.not_here)
