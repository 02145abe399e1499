"""Check everything a store holds in a namespace: structures, checksums, digest chains, journals and runs.

Reports damage, and exits with 1 if there is any. --quick skips the contents and is faster. --fingerprint FILE compares
with a fingerprint that `holdfast fingerprint` wrote, and reports threads that are older than it or missing; this
detects a store that was replaced by an older copy. The store can be in use meanwhile.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from holdfast.cli.bar import Show, bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, data, lines, put, put_json
from holdfast.cli.store import add_store, open_existing
from holdfast.errors import InvalidArgument
from holdfast.types import VerifyProgress, VerifyReport


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    add_store(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--deep", action="store_true", help="check everything (the default)")
    how.add_argument("--quick", action="store_true", help="skip the contents and their digests")
    parser.add_argument(
        "--fingerprint", metavar="FILE", type=Path, help="compare with a fingerprint from `holdfast fingerprint`"
    )
    parser.add_argument("--json", action="store_true", help="write the report as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    mark = None if arguments.fingerprint is None else _read(arguments.fingerprint)
    with open_existing(arguments) as hf, bar("structures") as show:
        report = hf.verify(
            deep=not arguments.quick, fingerprint=mark, progress=None if show is None else _telling(show)
        )
    if arguments.json:
        found = {"ok": report.ok, "threads": report.threads, "checkpoints": report.checkpoints}
        put_json({**found, "problems": data(report.problems)})
    else:
        for line in lines(report.problems):
            put(line)
        put(_summary(report))
    return Exit.OK if report.ok else Exit.ERROR


def _telling(show: Show) -> Callable[[VerifyProgress], None]:
    def tell(looked: VerifyProgress) -> None:
        show(f"threads ({looked.bytes >> 20} MiB)", looked.done, looked.of)

    return tell


def _summary(report: VerifyReport) -> str:
    what = f"{counted(report.threads, 'thread')}, {counted(report.checkpoints, 'checkpoint')}"
    return f"{what}: {'no problems' if report.ok else counted(len(report.problems), 'problem')}"


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read {path} ({error.strerror})") from error
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not a fingerprint from `holdfast fingerprint`") from None
