"""An interrupt at any line of an encoding or decoding is raised as it is: no sound value is reported as damaged."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.codec import jsontext, msgpack
from holdfast.delta.load import read_references
from holdfast.stores.contract import Refs, Span
from tests.cases import for_each
from tests.codec.strategies import identical
from tests.interruption import Interrupt

PACKAGE = str(Path(holdfast.__file__).parent)


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """Python drops an interrupt in a callback of the garbage collector, and hypothesis has such a callback."""
    gc.disable()
    yield
    gc.enable()


VALUES: list[Any] = [
    {"a": (1, 2, (3, {4, 5})), "at": datetime(2026, 11, 16, tzinfo=UTC), "cost": Decimal("1.5")},
    [{"big": 2**70, "set": frozenset({"x"}), "none": None}, (1, (2, (3,)))],
]
# These are encoded in two attempts. The first one fails in any case.
ODD: list[Any] = [
    {1: "int key", "half": "\ud800", "big": 2**70, (1, 2): frozenset({"x"})},
    [(((((((1,), 2), 3), 4), 5), 6), 7), {"deep": ((((({},),),),),)}],
]


def at_every_line(work: Callable[[], Any], expected: Any, within: str = PACKAGE) -> None:
    """Do some work with an interrupt at each line in turn, until it ends before the interrupt."""
    for at in count(1):
        interrupt, result = Interrupt(at, within=within), None
        with interrupt.strike():
            result = work()
        assert interrupt.ended_block == interrupt.came, f"the interrupt at {interrupt.place} was lost"
        if not interrupt.came:
            assert identical(result, expected)
            assert at > 4
            return


@for_each("value", VALUES)
def test_an_interrupt_in_an_encoding_is_raised(value: Any) -> None:
    at_every_line(lambda: msgpack.encode(value), msgpack.encode(value))
    at_every_line(lambda: msgpack.encode_items([value, 1]), msgpack.encode_items([value, 1]))
    at_every_line(lambda: msgpack.encode_sorted(value), msgpack.encode_sorted(value))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt while a generator ends
@for_each("value", ODD)
def test_an_interrupt_in_an_encoding_is_never_reported_as_another_error(value: Any) -> None:
    for at in count(1):
        interrupt = Interrupt(at, within=PACKAGE)
        with interrupt.strike():  # may be ignored: the first attempt fails in any case
            msgpack.encode(value)
        if not interrupt.came:
            assert at > 100
            return


@for_each("value", [*VALUES, *ODD])
def test_an_interrupt_in_a_decoding_is_raised(value: Any) -> None:
    packed = msgpack.encode(value)
    at_every_line(lambda: msgpack.decode(packed), value)
    at_every_line(lambda: msgpack.decode_items(packed + packed, 2), [value, value])


@for_each("value", VALUES)
def test_an_interrupt_while_a_value_is_written_as_text_is_raised(value: Any) -> None:
    packed = msgpack.encode(value)
    at_every_line(lambda: jsontext.to_text(packed), jsontext.to_text(packed), within="")


def test_an_interrupt_while_references_are_read_is_raised() -> None:
    body = msgpack.map_header(2) + msgpack.encode("a") + msgpack.extension(64, b"\0")
    body += msgpack.encode("b") + msgpack.extension(65, b"\0")
    refs = Refs((Span(0, 1, 0, 1, 1, 1), Span(0, 0, 0, 1, 1, 1)))
    at_every_line(lambda: sorted(read_references(body, refs, 0)), ["a", "b"])


def test_an_interrupt_is_not_raised_again_by_the_next_call() -> None:
    for at in range(1, 60):
        with Interrupt(at, within=PACKAGE).strike():
            msgpack.encode(VALUES[0])
        assert identical(msgpack.decode(msgpack.encode(VALUES[0])), VALUES[0])
