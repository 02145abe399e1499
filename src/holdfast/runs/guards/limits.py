"""LoopGuard and Budget: halt a run before the call that would be too many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.types import Usage

Prices: TypeAlias = Mapping[str, float] | Mapping[str, Mapping[str, float]]

_KINDS = ("input", "output", "cached", "cache_write")
_MILLION = 1_000_000
_SEPARATORS = ("", "-", "_", "@", ":", "/")  # between the parts of a model's name; "" before an empty one


class LoopGuard(msgspec.Struct, frozen=True, kw_only=True):
    """Halts a run that goes round in circles: the same thing `repeats` times within its last `window` calls.

    The same thing is the same tool with the same arguments, or the same answer of a model: what it says, whatever the
    case, white space, ids and timestamps, with what it asks tools to be called with.
    """

    window: int = 10
    repeats: int = 3

    def __post_init__(self) -> None:
        for name in ("window", "repeats"):
            if type(getattr(self, name)) is not int:
                raise InvalidArgument(f"LoopGuard: {name} must be a whole number")
        if not 2 <= self.repeats <= self.window:
            raise InvalidArgument("LoopGuard: repeats must be 2 or more, and window not less than that")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Halts a run that has spent so much: `steps` in which something was called, `tokens`, `cost`, `seconds` held.

    `usage` is a function of a recorded reply that gives its Usage, or None if it cost nothing; by default the two
    providers' replies are understood. `prices` are per million tokens, by kind (`{"input": 3, "output": 15}`, and
    "cached" and "cache_write" where they differ) or by model (`{"model-name": {"input": …}}`). A reply of which the
    tokens, or with `cost` the price, are not known halts the run too. InvalidArgument for a budget that limits nothing.
    """

    steps: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    usage: Callable[[Any], Usage | None] | None = None
    prices: Prices | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "tokens"):
            whole = getattr(self, name)
            if whole is not None and (type(whole) is not int or whole < 0):
                raise InvalidArgument(f"Budget: {name} must be a whole number, 0 or more")
        for name in ("cost", "seconds"):
            number = getattr(self, name)
            if number is not None and not _is_amount(number):
                raise InvalidArgument(f"Budget: {name} must be a number, 0 or more")
        if (self.steps, self.tokens, self.cost, self.seconds) == (None, None, None, None):
            raise InvalidArgument("a Budget needs a limit: steps=, tokens=, cost= or seconds=")
        if self.usage is not None and not callable(self.usage):
            raise InvalidArgument("Budget: usage must be a function of a reply")
        if self.prices is not None:
            _check_prices(self.prices)
        if self.cost is not None and self.usage is None and self.prices is None:
            raise InvalidArgument("Budget: cost= needs prices=, or a usage= that gives a cost")

    def cost_of(self, usage: Usage, model: str | None, cache_written: int = 0) -> float | None:
        """What a reply cost; None if it has tokens and there is no price for them.

        `cache_written` are those of its input that were written to a cache.
        """
        if usage.cost or not (usage.input or usage.output or usage.total):
            return usage.cost
        prices = None if self.prices is None else _prices_of(self.prices, model)
        if prices is None or not (usage.input or usage.output):  # a total alone may be of either kind
            return None
        cached = min(usage.cached, usage.input)
        written = min(cache_written, usage.input - cached)
        spent = (usage.input - cached - written) * prices["input"] + usage.output * prices["output"]
        spent += cached * prices.get("cached", prices["input"]) + written * prices.get("cache_write", prices["input"])
        return spent / _MILLION


Guard: TypeAlias = LoopGuard | Budget


def checked_guards(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """The guards of a run: at most one of each kind."""
    if isinstance(guards, LoopGuard | Budget):
        raise InvalidArgument("guards are given as a list or tuple, also a single one")
    try:
        checked = tuple(guards)
    except TypeError:
        raise InvalidArgument("guards must be a list or tuple of holdfast.LoopGuard and holdfast.Budget") from None
    for guard in checked:
        if not isinstance(guard, LoopGuard | Budget):
            raise InvalidArgument("guards must be holdfast.LoopGuard or holdfast.Budget")
    if len({type(guard) for guard in checked}) < len(checked):
        raise InvalidArgument("a run takes one LoopGuard and one Budget; put all limits into one")
    return checked


def _is_amount(number: object) -> bool:
    return type(number) in (int, float) and 0 <= float(str(number)) < math.inf


def _check_prices(prices: object) -> None:
    if not isinstance(prices, Mapping) or not prices or not all(type(name) is str for name in prices):
        raise InvalidArgument('Budget: prices must be a dict, {"input": 3, "output": 15} or one such for each model')
    by_model = list(prices.values()) if all(isinstance(each, Mapping) for each in prices.values()) else [prices]
    for each in by_model:
        if not {"input", "output"} <= set(each) <= set(_KINDS) or not all(map(_is_amount, each.values())):
            raise InvalidArgument(
                'Budget: prices are numbers, 0 or more, for "input" and "output" and, where they differ, "cached" and '
                '"cache_write"'
            )


def _prices_of(prices: Prices, model: str | None) -> Mapping[str, float] | None:
    by_model: dict[str, Mapping[str, float]] = {}
    by_kind: dict[str, float] = {}
    for name, each in prices.items():
        if isinstance(each, Mapping):
            by_model[name] = each
        else:
            by_kind[name] = each
    if by_kind:
        return by_kind
    found = [name for name in by_model if model is not None and _is_named(model, name)]
    return by_model[max(found, key=len)] if found else None


def _is_named(model: str, name: str) -> bool:
    """Replies name a model with its date, price lists often without. But "m-4o" and "m-4.1" are no "m-4"."""
    rest = model.removeprefix(name)
    return model.startswith(name) and (rest == "" or name[-1:] in _SEPARATORS or rest[0] in _SEPARATORS)
