"""Check all that a store holds in a namespace: structures, checksums, digests and their chains, journals, runs.

Says what is damaged, and ends with 1 if anything is. --quick leaves out the contents, and is done in a part of the
time. With --mark, a file that `holdfast mark` wrote, it also says which threads went back behind that, or are gone: so
an older copy shows that was put in the place of the store. Others can go on working meanwhile.
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
from holdfast.threads.verify import Looked, Report


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    add_store(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--deep", action="store_true", help="look at everything: this is what is done without --quick")
    how.add_argument("--quick", action="store_true", help="leave out the contents, and compute no digest")
    parser.add_argument("--mark", metavar="FILE", type=Path, help="compare with what `holdfast mark` wrote")
    parser.add_argument("--json", action="store_true", help="write what was found as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    mark = None if arguments.mark is None else _read(arguments.mark)
    with open_existing(arguments) as hf, bar("structures") as show:
        report = hf.verify(deep=not arguments.quick, mark=mark, progress=None if show is None else _telling(show))
    if arguments.json:
        found = {"ok": report.ok, "threads": report.threads, "checkpoints": report.checkpoints}
        put_json({**found, "problems": data(report.problems)})
    else:
        for line in lines(report.problems):
            put(line)
        put(_summary(report))
    return Exit.OK if report.ok else Exit.ERROR


def _telling(show: Show) -> Callable[[Looked], None]:
    def tell(looked: Looked) -> None:
        show(f"threads ({looked.bytes >> 20} MiB)", looked.done, looked.of)

    return tell


def _summary(report: Report) -> str:
    what = f"{counted(report.threads, 'thread')}, {counted(report.checkpoints, 'checkpoint')}"
    return f"{what}: {'nothing is wrong' if report.ok else counted(len(report.problems), 'problem')}"


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read {path} ({error.strerror})") from error
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not a mark") from None
