"""Write threads for others to read: all that is stored of them, their messages for OpenTelemetry, or a transcript.

--format jsonl, the default, has checkpoints, forks, labels, journals and runs; `holdfast import jsonl FILE` brings them
into any store. otel has messages and model calls as OpenTelemetry's GenAI conventions form them. Both take those that
are named, those of a --prefix, or all of the namespace. markdown and html are a transcript of one thread. All but jsonl
take a reference, THREAD@12, too; see `holdfast show`. Without --output they go to stdout. docs/export.md describes the
formats. What is encrypted is written in clear.
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
from holdfast.cli.output import _give_up
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.exporters import Exported, export_html, export_jsonl, export_markdown, export_otel
from holdfast.handle import Holdfast
from holdfast.looking.nearest import existing
from holdfast.looking.references import find, split
from holdfast.text import shown

_TRANSCRIPTS = {"markdown": export_markdown, "html": export_html}
_FORMATS = ("jsonl", "otel", *_TRANSCRIPTS)

Export = Callable[[Any], Exported]


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("threads", metavar="THREAD", nargs="*", help="which ones; by default all")
    parser.add_argument("--format", choices=_FORMATS, default="jsonl", help="jsonl, otel, markdown or html")
    parser.add_argument("--prefix", metavar="TEXT", help="those whose names begin with this")
    parser.add_argument("-o", "--output", metavar="FILE", help="a new file; by default stdout")
    parser.add_argument(
        "--redact", metavar="APP:FN", help="a function of a text, module:attribute, for every text but names; not jsonl"
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write what was done as JSON; needs --output")


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
        raise InvalidArgument("name threads, or give a --prefix, and not both")
    if arguments.json and arguments.output is None:
        raise InvalidArgument("--json says what was written, so what is written needs an --output of its own")
    if arguments.format in _TRANSCRIPTS and (len(arguments.threads) != 1 or arguments.prefix is not None):
        raise InvalidArgument(f"--format {arguments.format} is a transcript of one thread: name one, or a reference")
    if arguments.format == "jsonl" and arguments.redact is not None:
        raise InvalidArgument("--format jsonl has all as it is stored, so there is no --redact; see the other formats")


def _exporting(
    hf: Holdfast, arguments: Namespace, redact: Callable[[str], str] | None, progress: Show | None
) -> Export:
    """What writes to a file or a stream. NotFound, with what may have been meant, before anything is written."""
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
    """NotFound if there is no thread of that name, InvalidArgument if it is a reference to a checkpoint of one."""
    try:
        existing(hf, name)
    except NotFound:
        if "@" not in name:
            raise
        thread, _ = split(hf, name)
        raise InvalidArgument(
            f"--format jsonl has whole threads: name {shown(thread.name)} alone, or give another --format"
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
    """HoldfastError if stdout takes no more. BrokenPipeError, which ends the command, if nobody reads any more."""
    if sys.stdout is None:
        raise HoldfastError("stdout is closed, so nothing can be written to it")
    try:
        done = export(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _give_up()
        raise
    except OSError as error:
        _give_up()
        raise HoldfastError(f"stdout takes no more ({error.strerror})") from error
    return done
