"""The input of the tabs of a step, and values as text."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.looking.timeline import Step
from holdfast.looking.tree import shown as python
from holdfast.ui.html import Html
from holdfast.ui.values import long_text, to_text
from holdfast.ui.view import View


class Seen(NamedTuple):
    """The input of a tab: the request, the step, and its redacted state."""

    view: View
    step: Step
    state: Any


def data(value: Any) -> Html:
    """Return a value as JSON, cut if it is very long."""
    return long_text(written(value))


def written(value: Any) -> str:
    """Return a value as JSON, or as a Python repr if parts of it are lost."""
    try:
        return to_text(value)
    except HoldfastError:
        return python(value)
