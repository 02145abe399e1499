"""A step as its views see it, and values of it as text."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.looking.timeline import Step
from holdfast.looking.tree import shown as python
from holdfast.ui.html import Html
from holdfast.ui.values import long_text, to_text
from holdfast.ui.view import View


class Seen(NamedTuple):
    """What a view of a step is made of; the state is redacted."""

    view: View
    step: Step
    state: Any


def data(value: Any) -> Html:
    """A value as JSON, cut where nobody would read on."""
    return long_text(written(value))


def written(value: Any) -> str:
    """A value as JSON, or as Python shows it where something of it is lost."""
    try:
        return to_text(value)
    except HoldfastError:
        return python(value)
