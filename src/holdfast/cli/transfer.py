"""Transfer of threads into and out of a store: import and export."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from typing import Any, Final

from msgspec.structs import asdict

from holdfast.cli.command import Output, argument, choice, count, option, thread, verb
from holdfast.cli.layout import finding_lines
from holdfast.cli.location import Location
from holdfast.cli.named_objects import load_redaction
from holdfast.cli.terminal import Exit, Show, checked_stdout, did_you_mean, progress
from holdfast.errors import InvalidArgument, NotFound
from holdfast.exporters import Exported, export_html, export_jsonl, export_markdown, export_otel
from holdfast.handle import Holdfast
from holdfast.importers import FORMATS, Options, Report, checked_format, import_from
from holdfast.inspect import existing, find, split
from holdfast.text import counted, quoted

_TRANSCRIPTS: Final = {"markdown": export_markdown, "html": export_html}
_MISMATCHED: Final = ", ".join(name for name, each in FORMATS.items() if "accept_mismatch" in each.takes)


# -- import ------------------------------------------------------------------------------------------------------------


@verb(details="\n".join(f"{name} {each.source}: {each.summary}" for name, each in FORMATS.items()), bar="importing")
@argument("FORMAT", "name")
@argument("SOURCE")
@option("--dry-run", "show what would be imported, and store nothing")
@option("--replace", "drop threads that exist, and import them again; not for langgraph-*")
@option("--accept-mismatch", f"import and report checkpoints with a wrong checksum; for {_MISMATCHED}")
@option("--max-file-bytes N", "skip files, or lines of a file, over N bytes", count(), Options().max_file_bytes)
def import_(location: Location, show: Show, name: str, source: str, dry_run: bool, **given: Any) -> Output:
    """Import the threads of another system with all their checkpoints, then read each one back and compare it.

    SOURCE is the file, folder or URL that the format names; it is only read. A thread that exists is skipped, unless
    --replace is given. An import that was interrupted can be run again. Items that cannot be imported are skipped and
    reported with the reason; the rest is imported, and the exit code is 1. The formats:
    """
    if name not in FORMATS:
        known = did_you_mean(name, FORMATS) or f"; formats: {', '.join(FORMATS)}"
        raise InvalidArgument(f"unknown format {name!r}{known}")
    # Check the source first: an invalid one must not create an empty store.
    options = Options(**given)
    checked_format(name, options).open(source, None, options).close()
    with ExitStack() as held:
        hf: Holdfast | None = None
        with suppress(NotFound) if dry_run else nullcontext():  # a dry run needs no store, and must not create one
            hf = held.enter_context(location.open_existing() if dry_run else location.open())
        report = import_from(hf, name, source, dry_run=dry_run, progress=show, **given)
    data = {"ok": report.ok, **asdict(report)}
    return Output(data, _import_lines(report), code=Exit(not report.ok))


def _import_lines(report: Report) -> Iterator[str]:
    for heading, found in (("skipped", report.skipped), ("differs", report.differing), ("remark", report.remarks)):
        yield from (f"{heading}: {each}" for each in finding_lines(found))
    if report.untold:
        yield f"and {report.untold} more"
    would = "would be imported" if report.dry_run else "imported"
    moved = f"{counted(report.checkpoints, 'checkpoint')} and {counted(report.writes, 'write')} {would}"
    checked = "nothing was stored"
    if not report.dry_run:
        wrong = "" if report.ok else f", {len(report.skipped)} skipped, {len(report.differing)} differ"
        checked = f"{report.checked} read back and compared{wrong}"
    yield f"{counted(report.threads, 'thread')}: {moved}, {report.present} already present, {checked}"
    if report.existing:
        exist = "1 thread exists and was" if report.existing == 1 else f"{report.existing} threads exist and were"
        yield f"{exist} skipped; use --replace to import again"


# -- export ------------------------------------------------------------------------------------------------------------


@verb()
@thread("[THREAD]...", "names")
@choice("--format FORMAT", ["jsonl", "otel", *_TRANSCRIPTS], "jsonl", name="form")
@option("--prefix TEXT", "export threads whose names start with this")
@option("-o/--output FILE", "the new file to write (default: stdout)")
@option("--redact APP:FN", "a function (module:attribute) applied to every string but names; not for jsonl")
def export(
    location: Location,
    as_json: bool,
    names: tuple[str, ...],
    form: str,
    prefix: str | None,
    output: str | None,
    redact: str | None,
) -> Output:
    """Export threads: complete as JSON lines, in OpenTelemetry form, or as a readable transcript.

    jsonl (the default) holds checkpoints, forks, labels, journals and runs; `holdfast import jsonl FILE` imports it
    into any store. otel holds messages and model calls in the form of OpenTelemetry's GenAI conventions. Both export
    the named threads, those with --prefix, or all of the namespace. markdown and html are a transcript of one thread.
    All formats but jsonl also accept a reference like THREAD@12; see `holdfast show`. docs/how-to/export.md
    describes the formats.

    Without --output, the export goes to stdout. Encrypted data is exported in plain text. --json writes the result, and
    needs --output.
    """
    if names and prefix is not None:
        raise InvalidArgument("name threads or pass --prefix, not both")
    if as_json and output is None:
        raise InvalidArgument("--json writes the result to stdout, so the export needs --output FILE")
    if form in _TRANSCRIPTS and (len(names) != 1 or prefix is not None):
        raise InvalidArgument(f"--format {form} exports one thread: name a thread or a reference")
    if form == "jsonl" and redact is not None:
        raise InvalidArgument("--format jsonl exports stored data unchanged; use --redact with another format")
    function = load_redaction(redact)
    with location.open_existing() as hf, progress("reading") as show:
        write_to = _exporter(hf, form, names, prefix, function, show)
        if output is not None:
            done = write_to(output)
        else:
            with checked_stdout():
                done = write_to(sys.stdout.buffer)
                sys.stdout.buffer.flush()
    what = f"{counted(done.threads, 'thread')}, {counted(done.checkpoints, 'checkpoint')}"
    told = [*finding_lines(done.left_out), f"{what}, {counted(done.entries, 'journal entry')}: {done.bytes} bytes"]
    data = {"target": output, "ok": done.ok, **asdict(done)}
    lines, notes = ([], told) if output is None else (told, [])
    return Output(data, lines, notes, code=Exit(not done.ok))


def _exporter(
    hf: Holdfast,
    form: str,
    names: tuple[str, ...],
    prefix: str | None,
    redact: Callable[[str], str] | None,
    show: Show,
) -> Callable[[Any], Exported]:
    """Return the function that exports to a file or stream. Raises NotFound, with a suggestion, before it writes."""
    transcript = _TRANSCRIPTS.get(form)
    if transcript is not None:
        return lambda target: transcript(hf, target, names[0], redact=redact)
    which: dict[str, Any] = {"threads": list(names) or None, "prefix": prefix, "progress": show}
    if form == "otel":
        for reference in names:
            find(hf, reference)
        return lambda target: export_otel(hf, target, **which, redact=redact)
    for name in names:
        _require_whole(hf, name)
    return lambda target: export_jsonl(hf, target, **which)


def _require_whole(hf: Holdfast, name: str) -> None:
    """Raise NotFound if there is no thread of that name, InvalidArgument if the name is a reference."""
    try:
        existing(hf, name)
    except NotFound:
        if "@" not in name:
            raise
        row, _ = split(hf, name)
        raise InvalidArgument(
            f"--format jsonl exports whole threads: write {quoted(row.name)}, or choose another --format"
        ) from None
