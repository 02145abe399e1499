"""What the tests of adapters share: stores, pages that are executed, and sizes beside a framework's own store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from tests.test_docs import ROOT

STORES = ("sqlite", "directory", "postgres")


def url_of(kind: str, folder: Path) -> str:
    """The URL of an empty store."""
    if kind == "postgres":
        from tests.stores.postgres.server import address_at

        return address_at(folder)
    return f"{folder}.db" if kind == "sqlite" else f"{folder}/"


class Stop(Exception):
    """Ends a block, so that the next one resumes its run."""


async def interrupted_and_resumed(hf: Holdfast, work: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Do work in a block that fails, and again in one that resumes the run. Return both results."""
    results: list[Any] = []
    for is_first in (True, False):
        with suppress(Stop):
            async with hf.aio.run("t", start={}) as run:
                async for _ in run.steps():
                    results.append(await work())
                    if is_first:
                        raise Stop
                    await run.finish()
    return results


def run_page(name: str, folder: Path) -> None:
    """Execute the code of a page of docs/tutorials/, in a folder of its own."""
    imports = "from pathlib import Path; from tests.test_docs import ROOT, run_in"
    script = f"{imports}; run_in(Path({str(folder)!r}), ROOT / 'docs' / 'tutorials' / {name!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def refused(module: str, version: str | None) -> str:
    """The error of an import of an adapter with another version of its framework, or without it."""
    found = "raise metadata.PackageNotFoundError(name)" if version is None else f"return {version!r}"
    script = (
        "from importlib import metadata\n"
        f"def version(name): {found}\n"
        "metadata.version = version\n"
        f"try: import holdfast.adapters.{module}\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def seconds_of(work: Callable[[], Any]) -> float:
    """The processor time of some work."""
    start = time.process_time()
    found = work()
    if isinstance(found, Awaitable):
        asyncio.run(_awaited(found))
    return time.process_time() - start


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found


def size_of(path: Path) -> int:
    """The bytes of a file with its companions, or of all files in a folder."""
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
