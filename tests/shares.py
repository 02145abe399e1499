"""Which stores a test is run on. Where they are not the point, `make test` takes a share, `make test-stores` all."""

from __future__ import annotations

import os
from collections.abc import Sequence

EVERY_STORE = os.environ.get("HOLDFAST_STORES") == "all"


def share(every: Sequence[str], some: Sequence[str]) -> Sequence[str]:
    """All of them with $HOLDFAST_STORES=all, else some."""
    if unknown := set(some) - set(every):
        raise ValueError(f"not among all: {unknown}")
    return every if EVERY_STORE else some
