"""`holdfast.codec.register`: types of one's own, by name."""

from __future__ import annotations

import dataclasses
import fractions
from typing import Any

import pytest

import holdfast
from holdfast.codec import register
from holdfast.codec.msgpack import check, decode, encode
from holdfast.codec.registry import class_named, name_for
from holdfast.codec.typed import StateType
from holdfast.errors import InvalidArgument, Unsupported
from tests.cases import for_each


class Money:
    """A class that nothing knows how to store."""

    def __init__(self, cents: int, currency: str) -> None:
        self.cents = cents
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and (self.cents, self.currency) == (other.cents, other.currency)

    def __hash__(self) -> int:
        return hash(self.cents)


class Lossy:
    def __init__(self, n: int) -> None:
        self.n = n


@dataclasses.dataclass
class Cart:
    total: Money
    items: list[Money] = dataclasses.field(default_factory=list)
    share: fractions.Fraction | None = None


@pytest.fixture(autouse=True)
def _registered() -> None:
    register(Money, lambda money: [money.cents, money.currency], lambda plain: Money(*plain), name="money")
    register(fractions.Fraction, str, fractions.Fraction)
    register(Lossy, lambda _: 0, Lossy)


def test_it_is_a_name_of_the_package() -> None:
    assert holdfast.codec.register is register


ACCEPTED: list[tuple[Any, Any, Any]] = [
    (Money, Money(1, "EUR"), [1, "EUR"]),
    (list[Money], [Money(1, "EUR")], [[1, "EUR"]]),
    (Cart, Cart(Money(2, "EUR"), [Money(1, "EUR")], fractions.Fraction(1, 3)), None),
]


@for_each(("kind", "state", "stored"), ACCEPTED)
def test_a_registered_type_is_stored_as_what_encode_returns(kind: Any, state: Any, stored: Any) -> None:
    typed = StateType(kind)
    plain = typed.to_plain(state)
    check(plain)
    assert stored is None or plain == stored
    assert typed.from_plain(decode(encode(plain))) == state


def test_a_value_that_is_not_restored_equal_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"^\$\[0\]: a .*Lossy would not be restored equal"):
        # What decode makes of 0 is encoded to 0 again: only the attributes tell.
        StateType(list[Lossy]).to_plain([Lossy(3)])


@for_each(("plain",), [({"total": "x"},), ({"total": []},), ({"total": None},), ({"total": [1, 2, 3]},)])
def test_forged_data_does_not_fit(plain: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"does not fit type=.*Cart at \$\.total"):
        StateType(Cart).from_plain(plain)


def test_decode_must_return_the_type() -> None:
    register(Lossy, lambda lossy: lossy.n, lambda plain: plain)
    with pytest.raises(Unsupported, match="cannot be restored"):
        StateType(Lossy).to_plain(Lossy(1))


def test_names() -> None:
    assert name_for(Money) == "money"
    assert name_for(fractions.Fraction) == "fractions.Fraction"
    assert class_named("money") is Money
    assert name_for(Cart) is None
    assert name_for(dict) is None


@for_each(
    ("name",),
    [
        (each,)
        for each in (
            "os.system",
            "subprocess.Popen",
            "holdfast.handle.Holdfast",
            "openai.OpenAI",
            "openai.types.chat.nothing.Here",
            "openai.os.path",
            "openai._models.BaseModel.construct",
            "anthropic.lib",
            "anthropic",
            "",
            ".",
        )
    ],
)
def test_only_registered_classes_and_those_of_the_clients_have_names(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"holdfast\.codec\.register"):
        class_named(name)


REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("Money", str, str), {}, "must be a class"),
    ((str, str, str), {}, "stored as it is"),
    ((Cart, None, str), {}, "encode and decode must be functions"),
    ((Cart, str, 1), {}, "encode and decode must be functions"),
    ((Cart, str, str), {"name": ""}, "name must be a non-empty string"),
    ((Cart, str, str), {"name": "money"}, "another class is registered as 'money'"),
    ((Cart, str, str), {"name": "openai.types.chat.ChatCompletion"}, "name"),
]


@for_each(("given", "named", "why"), REFUSED)
def test_what_cannot_be_registered(given: tuple[Any, ...], named: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        register(*given, **named)
