"""Watch an agent that is killed repeatedly and still pays every invoice once. It runs offline for a few seconds.

The demo is part of Holdfast's source, not of the installed package. Arguments after `--` are passed to it; see
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

_HOW = "get Holdfast's source and run `make demo` there"


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("words", metavar="ARGUMENT", nargs="*", help="arguments of the demo, after --")
    parser.add_argument("--json", action="store_true", help="write the path of the demo as JSON; do not run it")


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
    """Return the path of the demo if this package is in its source tree."""
    found = Path(__file__).resolve().parents[3] / "examples" / "demo.py"
    return found if found.is_file() and (found.parents[1] / "src" / "holdfast").is_dir() else None
