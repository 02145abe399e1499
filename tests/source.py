"""The modules of the library, for tests about the source itself."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "holdfast"


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name without `holdfast.`; a package is named by its `__init__`, the root by ""."""
    found: dict[str, Path] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def tree_of(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text("utf-8"))


def below(package: str, module: str) -> bool:
    """Whether a module is the package itself or inside it."""
    return module == package or module.startswith(f"{package}.")
