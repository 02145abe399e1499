"""Check that the package of a framework is installed, in a version that its adapter was tested with."""

from __future__ import annotations

import re
from importlib import metadata


def require(package: str, first: str, before: str, extra: str) -> None:
    """ImportError, with the command that helps, unless a version from `first` on and before `before` is installed."""
    install = f"pip install 'holdfast[{extra}]'"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(f"this adapter needs {package}, which is not installed: {install}") from None
    if not _parts(first) <= _parts(found) < _parts(before):
        raise ImportError(
            f"this adapter was tested with {package} from {first} to before {before}, and {found} is installed: "
            f"{install}"
        )


def _parts(version: str) -> tuple[int, ...]:
    """The numbers of a version. What follows them, as in 2.0rc1, is ignored."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return () if numbers is None else tuple(map(int, numbers[0].split(".")))
