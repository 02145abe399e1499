"""The templates and their filters. Every text is escaped, and characters that a browser would obey are spelled out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast import text
from holdfast import text as printable
from holdfast.ui import content

_NAME_MOST: Final = 160
_STEP: Final = 1000


class Verbatim(str):
    """A text that is escaped as markup, but whose control characters are kept: the value of a form field."""

    __slots__ = ()


def render(template: str, **data: Any) -> Markup:
    """Render a template. The result is markup, because the template has escaped every text in it."""
    return Markup(environment().get_template(template).render(data))  # noqa: S704 - see above


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=PackageLoader("holdfast.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Callable[..., Any]] = {
        "line": printable.line,
        "name": _name,
        "verbatim": Verbatim,
        "count": _count,
        "counted": text.counted,
        "short": short,
        "size": text.sized,
        "money": money,
        "span": text.span,
        "stamp": text.stamp,
        "iso": _iso,
        "age": text.age,
        "json": content.as_json,
        "brief": content.brief,
        "coloured": content.coloured,
        "glance": content.call_glance,
        "lines": content.long_text,
        "outline": content.outline,
        "markdown": content.markdown,
        "words": _words,
        "css": _css,
    }
    made.filters.update(filters)
    return made


def short(number: float) -> str:
    """Format a number in at most five characters: 950, 12.3k, 4.5M."""
    for unit in ("", "k", "M", "G"):
        if abs(number) < _STEP or unit == "G":
            digits = f"{number:.0f}" if number >= 100 or number == int(number) else f"{number:.1f}"
            return f"{digits}{unit}"
        number /= _STEP
    raise AssertionError


def money(cost: float | None, currency: str = "USD") -> str:
    """Format a cost; "" for 0 and None."""
    return text.money(cost, currency) if cost else ""


def _shown(value: Any) -> Any:
    """Return a value as templates write it: without characters that a browser would obey or cannot be sent."""
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if isinstance(value, Verbatim):
        # UTF-8 cannot encode lone surrogates, and browsers drop NUL.
        return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
    return printable.block(value)


def _name(name: str) -> str:
    """Return a name in one line, shortened in the middle if it is very long."""
    told = printable.line(name)
    return told if len(told) <= _NAME_MOST else f"{told[: _NAME_MOST // 2]} … {told[-_NAME_MOST // 2 :]}"


def _count(number: int) -> str:
    return f"{number:,}"


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _words(word: str) -> str:
    return word.replace("_", " ")


def _css(word: str) -> str:
    return word.replace(" ", "-").replace("_", "-")
