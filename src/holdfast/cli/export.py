"""Export threads: complete as JSON lines, in OpenTelemetry form, or as a readable transcript.

jsonl (the default) holds checkpoints, forks, labels, journals and runs; `holdfast import jsonl FILE` imports it into
any store. otel holds messages and model calls in the form of OpenTelemetry's GenAI conventions. Both export the named
threads, those with --prefix, or all of the namespace. markdown and html are a transcript of one thread. All formats
but jsonl also accept a reference like THREAD@12; see `holdfast show`. docs/export.md describes the formats.

Without --output, the export goes to stdout. Encrypted data is exported in plain text.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import IO, Any

from holdfast.cli.application import load_redaction
from holdfast.cli.bar import Show, bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, data, lines, put, put_json
from holdfast.cli.output import give_up
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.exporters import Exported, export_html, export_jsonl, export_markdown, export_otel
from holdfast.handle import Holdfast
from holdfast.looking.nearest import existing
from holdfast.looking.references import find, split
from holdfast.text import quoted

_TRANSCRIPTS = {"markdown": export_markdown, "html": export_html}
_FORMATS = ("jsonl", "otel", *_TRANSCRIPTS)

Export = Callable[[Any], Exported]


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("threads", metavar="THREAD", nargs="*", help="the threads to export (default: all)")
    parser.add_argument("--format", choices=_FORMATS, default="jsonl", help="jsonl, otel, markdown or html")
    parser.add_argument("--prefix", metavar="TEXT", help="export threads whose names start with this")
    parser.add_argument("-o", "--output", metavar="FILE", help="the new file to write (default: stdout)")
    parser.add_argument(
        "--redact",
        metavar="APP:FN",
        help="a function (module:attribute) that is applied to every string but names; not for jsonl",
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON; needs --output")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    _check(arguments)
    redact = None if arguments.redact is None else load_redaction(arguments.redact)
    with open_existing(arguments) as hf, bar("reading") as show:
        export = _exporting(hf, arguments, redact, show)
        done = _to_stdout(export) if arguments.output is None else export(arguments.output)
    _tell(arguments, done)
    return Exit.OK if done.ok else Exit.ERROR


def _check(arguments: Namespace) -> None:
    if arguments.threads and arguments.prefix is not None:
        raise InvalidArgument("name threads or pass --prefix, not both")
    if arguments.json and arguments.output is None:
        raise InvalidArgument("--json writes the result to stdout, so the export needs --output FILE")
    if arguments.format in _TRANSCRIPTS and (len(arguments.threads) != 1 or arguments.prefix is not None):
        raise InvalidArgument(f"--format {arguments.format} exports one thread: name a thread or a reference")
    if arguments.format == "jsonl" and arguments.redact is not None:
        raise InvalidArgument("--format jsonl exports stored data unchanged; use --redact with another format")


def _exporting(
    hf: Holdfast, arguments: Namespace, redact: Callable[[str], str] | None, progress: Show | None
) -> Export:
    """Return the function that exports to a file or stream. Raises NotFound, with a suggestion, before it writes."""
    transcript = _TRANSCRIPTS.get(arguments.format)
    if transcript is not None:
        return lambda target: transcript(hf, target, arguments.threads[0], redact=redact)
    which: dict[str, Any] = {"threads": arguments.threads or None, "prefix": arguments.prefix, "progress": progress}
    if arguments.format == "otel":
        for reference in arguments.threads:
            find(hf, reference)
        return lambda target: export_otel(hf, target, **which, redact=redact)
    for name in arguments.threads:
        _whole(hf, name)
    return lambda target: export_jsonl(hf, target, **which)


def _whole(hf: Holdfast, name: str) -> None:
    """Raise NotFound if there is no thread of that name, InvalidArgument if the name is a reference."""
    try:
        existing(hf, name)
    except NotFound:
        if "@" not in name:
            raise
        thread, _ = split(hf, name)
        raise InvalidArgument(
            f"--format jsonl exports whole threads: write {quoted(thread.name)}, or choose another --format"
        ) from None


def _tell(arguments: Namespace, done: Exported) -> None:
    tell = say if arguments.output is None else put
    if arguments.json:
        counts: dict[str, Any] = {"threads": done.threads, "checkpoints": done.checkpoints, "entries": done.entries}
        counts = {"target": arguments.output, "ok": done.ok, **counts, "bytes": done.bytes}
        put_json({**counts, "left_out": data(done.left_out)})
        return
    for line in lines(done.left_out):
        tell(line)
    what = f"{counted(done.threads, 'thread')}, {counted(done.checkpoints, 'checkpoint')}"
    tell(f"{what}, {done.entries} journal entr{'y' if done.entries == 1 else 'ies'}: {done.bytes} bytes")


def _to_stdout(export: Callable[[IO[bytes]], Exported]) -> Exported:
    """Export to stdout. Raises HoldfastError if a write fails, BrokenPipeError if the pipe is closed."""
    if sys.stdout is None:
        raise HoldfastError("stdout is closed; nothing was written")
    try:
        done = export(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        give_up()
        raise
    except OSError as error:
        give_up()
        raise HoldfastError(f"cannot write to stdout ({error.strerror}); the output is incomplete") from error
    return done
