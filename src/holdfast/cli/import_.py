"""Import the threads of another system with all their checkpoints, then read each one back and compare it.

SOURCE is only read. An import that was interrupted can be run again: checkpoints already imported are not stored twice.
Items that cannot be imported are skipped and reported with the reason; the rest is imported, and the exit code is 1.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.bar import bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, lines, put, put_json
from holdfast.cli.numbers import count
from holdfast.cli.store import add_store, open_existing, open_store
from holdfast.cli.talk import nearest
from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.importers import FORMATS, Finding, Options, Progress, Report, import_from
from holdfast.importers.formats import checked_format


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    formats = "\n".join(f"{name} {each.source}: {each.summary}" for name, each in FORMATS.items())
    parser.add_argument("format", metavar="FORMAT", help=f"one of\n{formats}")
    parser.add_argument("source", metavar="SOURCE", help="the file, folder or URL that the format names")
    add_store(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would be imported, and store nothing")
    parser.add_argument(
        "--accept-mismatch",
        action="store_true",
        help=f"import and report checkpoints with a wrong checksum; for {_takers('accept_mismatch')}",
    )
    parser.add_argument(
        "--max-file-bytes",
        metavar="N",
        type=count,
        default=Options().max_file_bytes,
        help=f"skip files, or lines of a file, over N bytes (default: {Options().max_file_bytes})",
    )
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def _takers(option: str) -> str:
    return ", ".join(name for name, each in FORMATS.items() if option in each.takes)


def run(arguments: Namespace) -> int:
    """See `Program`."""
    if arguments.format not in FORMATS:
        known = nearest(arguments.format, FORMATS) or f"; formats: {', '.join(FORMATS)}"
        raise InvalidArgument(f"unknown format {arguments.format!r}{known}")
    report = _rehearsed(arguments) if arguments.dry_run else _imported(arguments)
    if arguments.json:
        put_json(_data(report))
    else:
        _tell(report)
    return Exit.OK if report.ok else Exit.ERROR


def _imported(arguments: Namespace) -> Report:
    options = Options(accept_mismatch=arguments.accept_mismatch, max_file_bytes=arguments.max_file_bytes)
    # Check the source first: an invalid one must not create an empty store.
    checked_format(arguments.format, options).open(arguments.source, None, options).close()
    with bar("importing") as show, open_store(arguments) as hf:
        return _import(arguments, hf, show)


def _rehearsed(arguments: Namespace) -> Report:
    with bar("reading") as show:
        try:
            opened = open_existing(arguments)
        except NotFound:
            return _import(arguments, None, show)
        with opened as hf:
            return _import(arguments, hf, show)


def _import(arguments: Namespace, hf: Holdfast | None, show: Progress | None) -> Report:
    return import_from(
        hf,
        arguments.format,
        arguments.source,
        dry_run=arguments.dry_run,
        progress=show,
        accept_mismatch=arguments.accept_mismatch,
        max_file_bytes=arguments.max_file_bytes,
    )


def _tell(report: Report) -> None:
    for heading, found in (
        ("skipped", report.skipped),
        ("differs", report.differing),
        ("remark", report.remarks),
    ):
        for line in lines(found):
            put(f"{heading}: {line}")
    if report.untold:
        put(f"and {report.untold} more")
    would = "would be imported" if report.dry_run else "imported"
    moved = f"{counted(report.checkpoints, 'checkpoint')} and {counted(report.writes, 'write')} {would}"
    put(f"{counted(report.threads, 'thread')}: {moved}, {report.present} already present, {_checked(report)}")


def _checked(report: Report) -> str:
    if report.dry_run:
        return "nothing was stored"
    sound = "" if report.ok else f", {len(report.skipped)} skipped, {len(report.differing)} differ"
    return f"{report.checked} read back and compared{sound}"


def _data(report: Report) -> dict[str, object]:
    def findings(found: tuple[Finding, ...]) -> list[dict[str, str | None]]:
        return [{"thread": each.thread, "item": each.item, "reason": each.reason} for each in found]

    return {
        "ok": report.ok,
        "dry_run": report.dry_run,
        "threads": report.threads,
        "checkpoints": report.checkpoints,
        "writes": report.writes,
        "present": report.present,
        "checked": report.checked,
        "skipped": findings(report.skipped),
        "differing": findings(report.differing),
        "remarks": findings(report.remarks),
        "untold": report.untold,
    }
