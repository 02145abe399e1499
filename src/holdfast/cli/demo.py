"""Watch an agent that is killed again and again, and pays every invoice once. Offline, some seconds.

The demo comes with the source of Holdfast, not with the installed package. What follows `--` is given to it; see
`holdfast demo -- --help`.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put_json
from holdfast.errors import NotInstalled

_HOW = "get the source of Holdfast, and run `make demo` there"


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("words", metavar="ARGUMENT", nargs="*", help="what is given to the demo, behind --")
    parser.add_argument("--json", action="store_true", help="write where the demo is as JSON, and do not run it")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    demo = _path()
    if arguments.json:
        put_json({"path": None if demo is None else str(demo), "how": _HOW})
        return Exit.OK if demo is not None else Exit.ERROR
    if demo is None:
        raise NotInstalled(f"the demo is not part of the installed package: {_HOW}")
    done = subprocess.run([sys.executable, str(demo), *arguments.words], check=False)  # noqa: S603 - our own program
    return Exit.OK if done.returncode == 0 else Exit.ERROR


def _path() -> Path | None:
    """The demo, where this package lies in its source tree."""
    found = Path(__file__).resolve().parents[3] / "examples" / "demo.py"
    return found if found.is_file() and (found.parents[1] / "src" / "holdfast").is_dir() else None
