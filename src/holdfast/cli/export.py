"""Write threads as JSON lines, with all that is stored of them: checkpoints, forks, labels, journals, runs.

Those that are named, those of a --prefix, or all of the namespace. `holdfast import jsonl FILE` brings them into any
store; docs/export.md has the format. Without --output they go to stdout. What is encrypted is written in clear.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import IO, Any

from holdfast.cli.bar import bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, data, lines, put, put_json
from holdfast.cli.output import _give_up
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.exporters import Exported, export_jsonl
from holdfast.looking.nearest import existing


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("threads", metavar="THREAD", nargs="*", help="which ones; by default all")
    parser.add_argument("--prefix", metavar="TEXT", help="those whose names begin with this")
    parser.add_argument("--output", metavar="FILE", help="a new file; by default stdout")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write what was done as JSON; needs --output")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    if arguments.threads and arguments.prefix is not None:
        raise InvalidArgument("name threads, or give a --prefix, and not both")
    if arguments.json and arguments.output is None:
        raise InvalidArgument("--json says what was written, so what is written needs an --output of its own")
    which: dict[str, Any] = {"threads": arguments.threads or None, "prefix": arguments.prefix}
    with open_existing(arguments) as hf, bar("reading") as show:
        for name in arguments.threads:
            existing(hf, name)
        if arguments.output is None:
            done = _to_stdout(lambda out: export_jsonl(hf, out, **which, progress=show))
        else:
            done = export_jsonl(hf, arguments.output, **which, progress=show)
    _tell(arguments, done)
    return Exit.OK if done.ok else Exit.ERROR


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
    """HoldfastError if stdout takes no more."""
    try:
        done = export(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except OSError as error:
        _give_up()
        raise HoldfastError(f"stdout takes no more ({error.strerror})") from error
    return done
