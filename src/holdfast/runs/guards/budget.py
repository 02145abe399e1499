"""Budget: halt a run that has used its steps, tokens, money or time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.errors import InvalidArgument
from holdfast.runs.arguments import is_number
from holdfast.runs.guards.usage import cache_written, model_named, usage_of_reply
from holdfast.runs.lease import local_seconds
from holdfast.stores.contract_runs import Entry
from holdfast.text import counted
from holdfast.types import Usage

Prices: TypeAlias = Mapping[str, float] | Mapping[str, Mapping[str, float]]

_KINDS: Final = ("input", "output", "cached", "cache_write")
_MILLION: Final = 1_000_000
_SEPARATORS: Final = ("", "-", "_", "@", ":", "/")  # between the parts of a model's name; "" before an empty part


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Halts a run before a call if it has used its `steps`, `tokens`, `cost` or `seconds`.

    Only steps with a call count, and only the time in which a process holds the run.

    `usage` is a function that returns the Usage of a recorded reply, or None if the reply cost nothing. The default
    understands the replies of OpenAI and Anthropic. `prices` are per million tokens, by kind (`{"input": 3, "output":
    15}`, and "cached" and "cache_write" where they differ) or by model (`{"model-name": {"input": …}}`). The run also
    halts if the tokens of a reply, or with `cost` its price, are unknown. InvalidArgument for a budget without a limit.
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
            if number is not None and not is_number(number, 0):
                raise InvalidArgument(f"Budget: {name} must be a number, 0 or more")
        if (self.steps, self.tokens, self.cost, self.seconds) == (None, None, None, None):
            raise InvalidArgument("a Budget needs a limit: steps=, tokens=, cost= or seconds=")
        if self.usage is not None and not callable(self.usage):
            raise InvalidArgument("Budget: usage must be a function of a reply")
        if self.prices is not None:
            _check_prices(self.prices)
        if self.cost is not None and self.usage is None and self.prices is None:
            raise InvalidArgument("Budget: cost= needs prices=, or a usage= that returns a cost")

    def usage_of(self, reply: Any) -> Usage | None:
        """The usage of a reply; None if it is unknown, or if `usage` returns None."""
        usage = (self.usage or usage_of_reply)(reply)
        if usage is not None and not isinstance(usage, Usage):
            raise InvalidArgument("usage= must return a holdfast.Usage or None")
        return usage

    def cost_of(self, usage: Usage, model: str | None, cache_written: int = 0) -> float | None:
        """The cost of a reply; None if it used tokens that have no price.

        `cache_written` is the part of its input that was written to a cache.
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


class Meter:
    """The part of its budget that a run has used."""

    def __init__(self, budget: Budget, held: int) -> None:
        """`held` is how many ms earlier claims of the run took."""
        self.held = held
        self.failure: Exception | None = None  # raised by the user's `usage`
        self._budget = budget
        self._since = local_seconds()
        self._steps: set[tuple[int, int]] = set()
        self._tokens = 0
        self._cost = 0.0
        self._unknown: str | None = None  # why the usage of a reply is unknown
        self._largest: tuple[int, float] | None = None  # the most tokens, and the highest cost, of a reply
        self.in_flight = 0  # model calls without a reply yet, except those that make other calls

    @property
    def held_ms(self) -> int:
        """How long the run was held, by all claims."""
        return self.held + round((local_seconds() - self._since) * 1000)

    def may_be_used_up(self) -> bool:
        """Whether the calls in flight may use up the budget. Each may take as much as the largest reply so far."""
        budget = self._budget
        if not self.in_flight or (budget.tokens is None and budget.cost is None):
            return False
        if self._largest is None:
            return True
        tokens, cost = self._largest
        if budget.tokens is not None and self._tokens + self.in_flight * tokens >= budget.tokens:
            return True
        return budget.cost is not None and self._cost + self.in_flight * cost >= budget.cost

    def count_step(self, entry: Entry) -> None:
        """Count the step of a call."""
        self._steps.add((entry.branch, entry.step))

    def count(self, entry: Entry, reply: Any) -> Usage | None:
        """Count a model's reply and return its usage, to be stored with it."""
        budget = self._budget
        self._largest = self._largest or (0, 0.0)
        try:
            usage = entry.usage if entry.usage is not None else budget.usage_of(reply)
            if usage is None:
                if budget.usage is None and (budget.tokens is not None or budget.cost is not None):
                    self._unknown = f"the budget cannot be checked: {entry.name} reports no tokens; pass usage="
                return None
            # A user's `usage` may count the cached part in another way.
            written = cache_written(reply) if budget.usage is None else 0
            cost = budget.cost_of(usage, model_named(reply), written)
            if cost is None and entry.usage is not None and budget.usage is not None:
                # The stored usage was counted without a price.
                known = budget.usage_of(reply)
                cost = 0.0 if known is None else budget.cost_of(known, model_named(reply))
        except Exception as failure:  # noqa: BLE001 - the user's function; the reply is paid for, and recorded first
            self.failure = failure
            return None
        if cost is None and budget.cost is not None:
            self._unknown = _no_price(entry, model_named(reply))
        tokens = usage.total or usage.input + usage.output
        self._tokens += tokens
        self._cost += cost or 0.0
        self._largest = (max(tokens, self._largest[0]), max(cost or 0.0, self._largest[1]))
        return usage if cost is None else replace(usage, cost=cost)

    def exceeded(self, entry: Entry) -> str | None:
        """The reason why a call may not be made; None if it may."""
        if self.failure is not None:
            raise InvalidArgument(
                f"the usage= of the Budget raised {type(self.failure).__name__} for a recorded reply; "
                "nothing was called. Correct the function and run again."
            ) from self.failure
        if self._unknown is not None:
            return self._unknown
        budget = self._budget
        is_new_step = (entry.branch, entry.step) not in self._steps
        if budget.steps is not None and len(self._steps) + is_new_step > budget.steps:
            allowed, made = counted(budget.steps, "step"), counted(len(self._steps), "step")
            following = ", and the next call is in another one" if is_new_step else ""
            return f"the budget of {allowed} is spent: calls were made in {made}{following}"
        if budget.tokens is not None and self._tokens >= budget.tokens:
            return f"the budget of {counted(budget.tokens, 'token')} is spent: {counted(self._tokens, 'token')} used"
        cost = round(self._cost, 9)  # sums of floats end in noise
        if budget.cost is not None and cost >= budget.cost:
            return f"the budget for cost, {budget.cost}, is spent: the calls cost {cost}"
        seconds = round(self.held_ms / 1000, 3)
        if budget.seconds is not None and seconds >= budget.seconds:
            return f"the budget of {budget.seconds} seconds is spent: the run was held for {seconds} seconds"
        return None


def _check_prices(prices: object) -> None:
    if not isinstance(prices, Mapping) or not prices or not all(type(name) is str for name in prices):
        raise InvalidArgument('Budget: prices must be a dict, {"input": 3, "output": 15} or one such for each model')
    by_model = list(prices.values()) if all(isinstance(each, Mapping) for each in prices.values()) else [prices]
    for each in by_model:
        are_amounts = all(is_number(price, 0) for price in each.values())
        if not {"input", "output"} <= set(each) <= set(_KINDS) or not are_amounts:
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
    """Whether a price is for a model. Replies name a model with its date, price lists often without.

    But "m-4o" and "m-4.1" do not match "m-4".
    """
    rest = model.removeprefix(name)
    return model.startswith(name) and (rest == "" or name[-1:] in _SEPARATORS or rest[0] in _SEPARATORS)


def _no_price(entry: Entry, model: str | None) -> str:
    what = f"the reply of {entry.name}, which names no model" if model is None else f"model {model!r} of {entry.name}"
    return f"the budget cannot be checked: there is no price for {what}; add it to prices=, or let usage= return a cost"
