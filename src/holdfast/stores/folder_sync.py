"""Sync a folder, so that new, renamed and removed files in it survive a power loss."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager


def sync_folder(folder: str) -> None:
    """Make new, renamed and removed names in a folder durable."""
    with opened_folder(folder) as sync:
        sync()


@contextmanager
def opened_folder(folder: str) -> Generator[Callable[[], None]]:
    """Open a folder before names in it change. The function it yields makes the change durable.

    If the folder cannot be opened, as on a full disk, nothing has changed yet.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield lambda: os.fsync(descriptor)
    finally:
        os.close(descriptor)
