"""Checksums of Continuum, over numbers that it reads and writes anew."""

from __future__ import annotations

import hashlib
import json
import random

import pytest

from holdfast.importers.continuum_checksum import Checksum
from tests.importers.continuum_source import rust_float


def test_the_share_of_fractions_that_are_read_inexactly_is_as_it_was_measured() -> None:
    """About every tenth of uniform numbers, in a measurement of that library."""
    source = random.Random(7)
    refused = sum(Checksum(json.dumps({"x": source.random()})).is_refused_there() for _ in range(2000))
    assert 0.07 < refused / 2000 < 0.15


@pytest.mark.parametrize("value", [0.5, 0.25, 1.0, 100.0, 0.1, 1e10, 1e22, 2.5e-3])
def test_short_fractions_are_read_exactly(value: float) -> None:
    assert not Checksum(json.dumps({"x": value})).is_refused_there()


def test_another_spelling_fits_if_the_checksum_is_of_that() -> None:
    """As a later version of its JSON library may have it."""
    bare = '{"a":1E+16,"b":[0.10,1e-07]}'
    checksum = hashlib.sha256(bare.encode()).hexdigest()
    assert Checksum(f'{bare[:-1]}, "_checksum": "{checksum}"}}').problem() is None
    assert Checksum(f'{bare[:-1]}, "_checksum": "{checksum}"}}'.replace("0.10", "0.11")).problem() is not None


def test_floats_are_written_as_rust_does() -> None:
    assert [rust_float(value) for value in (0.00001, 1e-6, 1e15, 1e16, 1.5e16, 0.3, 12.5, -0.0, 1e-5 * 3)] == [
        "0.00001", "1e-6", "1000000000000000.0", "1e16", "1.5e16", "0.3", "12.5", "-0.0", "0.000030000000000000004",
    ]  # fmt: skip
