"""Many cases in one test, where each failure names its case and a test per case would only cost time."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from typing import Any


def for_each(
    names: str | tuple[str, ...], values: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each of the values, like `pytest.mark.parametrize`, but as one test.

    Fixtures are shared by all cases. The first case that fails ends the test, and a note names it.
    """
    several = isinstance(names, tuple)
    listed = names if isinstance(names, tuple) else (names,)
    cases = [dict(zip(listed, value if several else (value,), strict=True)) for value in values]
    if not cases:
        raise ValueError(f"no values for {names}")

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        left = [each for each in signature.parameters.values() if each.name not in listed]

        @functools.wraps(test)
        def run(*arguments: Any, **fixtures: Any) -> None:
            for case in cases:
                try:
                    test(*arguments, **fixtures, **case)
                except BaseException as error:
                    error.add_note(f"with {', '.join(f'{name}={_shown(value)}' for name, value in case.items())}")
                    raise

        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorated


def _shown(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except Exception:  # noqa: BLE001 - a value that cannot be shown must not hide the failure
        return f"<{type(value).__name__}>"
