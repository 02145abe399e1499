"""Values the codec takes, and what it means that one came back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Etc/GMT+12")


def texts() -> st.SearchStrategy[str]:
    """Any str, lone surrogates included."""
    return st.text(max_size=20) | st.text(st.characters(), max_size=5)


def offsets() -> st.SearchStrategy[timedelta]:
    limit = timedelta(hours=24) - timedelta(microseconds=1)
    return st.timedeltas(-limit, limit)


def zones() -> st.SearchStrategy[tzinfo | None]:
    return st.one_of(
        st.none(),
        st.just(UTC),
        st.builds(timezone, offsets()),
        st.builds(timezone, offsets(), texts()),
        st.builds(ZoneInfo, st.sampled_from(ZONES)),
    )


def datetimes() -> st.SearchStrategy[datetime]:
    return st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.datetimes(), zones(), folds())


def times() -> st.SearchStrategy[time]:
    return st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), zones(), folds())


def folds() -> st.SearchStrategy[int]:
    return st.integers(0, 1)


def integers() -> st.SearchStrategy[int]:
    edges = [sign * (1 << bits) + more for bits in (7, 8, 31, 63, 64, 200) for sign in (1, -1) for more in (-1, 0, 1)]
    return st.integers() | st.sampled_from(edges)


def hashable_leaves() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.booleans(),
        integers(),
        st.floats(),
        texts(),
        st.binary(max_size=20),
        datetimes(),
        st.dates(),
        times(),
        st.timedeltas(),
        st.uuids(),
        st.decimals().filter(lambda number: not number.is_snan()),
    )


def leaves() -> st.SearchStrategy[Any]:
    return hashable_leaves() | st.sampled_from([Decimal("sNaN"), Decimal("-sNaN7"), Decimal("-0E+3")])


def keys() -> st.SearchStrategy[Any]:
    return st.recursive(
        hashable_leaves(),
        lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
        max_leaves=4,
    )


def values() -> st.SearchStrategy[Any]:
    """Anything the codec takes."""
    return st.recursive(
        leaves() | st.sets(keys(), max_size=3) | st.frozensets(keys(), max_size=3),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(texts(), inner, max_size=4),
            st.dictionaries(keys(), inner, max_size=4),
        ),
        max_leaves=12,
    )


def identical(left: Any, right: Any) -> bool:
    """Equal and of the same types, everywhere; NaN is NaN. Written apart from the codec, so that it can disagree."""
    kind = type(left)
    if type(right) is not kind:
        return False
    if kind is float:
        return math.copysign(1, left) == math.copysign(1, right) and repr(left) == repr(right)
    if kind is Decimal:
        return repr(left) == repr(right)
    if kind is datetime or kind is time:
        naive = left.replace(tzinfo=None) == right.replace(tzinfo=None)
        return naive and left.fold == right.fold and _same_zone(left.tzinfo, right.tzinfo)
    if kind in (list, tuple):
        return len(left) == len(right) and all(map(identical, left, right))
    if kind is dict:
        return len(left) == len(right) and all(map(identical, left, right)) and all(identical_values(left, right))
    if kind in (set, frozenset):
        others = list(right)
        for item in left:
            match = next((i for i, other in enumerate(others) if identical(item, other)), None)
            if match is None:
                return False
            others.pop(match)
        return not others
    assert kind in (type(None), bool, int, str, bytes, date, timedelta, UUID), kind
    return bool(left == right)


def identical_values(left: dict[Any, Any], right: dict[Any, Any]) -> list[bool]:
    return [identical(one, other) for one, other in zip(left.values(), right.values(), strict=True)]


def _same_zone(left: tzinfo | None, right: tzinfo | None) -> bool:
    if isinstance(left, timezone) and isinstance(right, timezone):
        return repr(left) == repr(right)
    return left is right
