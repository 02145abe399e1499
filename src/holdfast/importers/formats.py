"""The import formats by name. Modules that need extras are imported when a format is used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers.foreign_file import FILE_MAX
from holdfast.importers.frame import Progress, Report, Source, run
from holdfast.importers.options import Options


class Format(NamedTuple):
    """One format. `open` opens a source, to be imported into a store; without a store only a dry run is possible.

    `takes` names the fields of `Options` that the format supports.
    """

    summary: str
    source: str
    open: Callable[[str, Holdfast | None, Options], Source]
    takes: tuple[str, ...] = ()


# ruff: noqa: PLC0415 - some formats need extras
def _ares(source: str, hf: Holdfast | None, options: Options) -> Source:
    from holdfast.importers.ares import open_ares

    return open_ares(source, hf, options)


def _continuum(source: str, hf: Holdfast | None, options: Options) -> Source:
    from holdfast.importers.continuum import open_continuum

    return open_continuum(source, hf, options)


def _claude_transcript(source: str, hf: Holdfast | None, options: Options) -> Source:
    from holdfast.importers.claude_transcripts import open_claude_transcripts

    return open_claude_transcripts(source, hf, options)


def _langgraph_sqlite(source: str, hf: Holdfast | None, _options: Options) -> Source:
    from holdfast.importers.langgraph import open_sqlite

    return open_sqlite(source, hf)


def _langgraph_postgres(source: str, hf: Holdfast | None, _options: Options) -> Source:
    from holdfast.importers.langgraph import open_postgres

    return open_postgres(source, hf)


def _jsonl(source: str, hf: Holdfast | None, _options: Options) -> Source:
    from holdfast.importers.jsonl import open_jsonl

    return open_jsonl(source, hf)


def _openai_agents_sqlite(source: str, hf: Holdfast | None, options: Options) -> Source:
    from holdfast.importers.openai_agents import open_openai_agents

    return open_openai_agents(source, hf, options)


def _smooth_file(source: str, hf: Holdfast | None, options: Options) -> Source:
    from holdfast.importers.smooth_file import open_smooth_files

    return open_smooth_files(source, hf, options)


def _smooth_sqlite(source: str, hf: Holdfast | None, options: Options) -> Source:
    from holdfast.importers.smooth_sqlite import open_smooth_sqlite

    return open_smooth_sqlite(source, hf, options)


FORMATS = {
    "jsonl": Format("a file written by `holdfast export`", "FILE", _jsonl),
    "langgraph-sqlite": Format("threads of LangGraph's SqliteSaver", "FILE", _langgraph_sqlite),
    "langgraph-postgres": Format("threads of LangGraph's PostgresSaver", "URL", _langgraph_postgres),
    "ares": Format("checkpoints of ares-server", "DIR", _ares, ("max_file_bytes",)),
    "continuum": Format("session folders of Continuum", "DIR", _continuum, ("accept_mismatch", "max_file_bytes")),
    "smooth-file": Format("checkpoints of Smooth's FileCheckpointStore", "DIR", _smooth_file, ("max_file_bytes",)),
    "smooth-sqlite": Format(
        "checkpoints of Smooth's SqliteCheckpointStore", "FILE", _smooth_sqlite, ("max_file_bytes",)
    ),
    "openai-agents-sqlite": Format(
        "sessions of the OpenAI Agents SDK's SQLiteSession", "FILE", _openai_agents_sqlite, ("max_file_bytes",)
    ),
    "claude-transcript": Format(
        "sessions of Claude Code and the Claude Agent SDK", "FILE or DIR", _claude_transcript, ("max_file_bytes",)
    ),
}


def import_from(
    hf: Holdfast | None,
    kind: str,
    source: str,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    accept_mismatch: bool = False,
    max_file_bytes: int = FILE_MAX,
) -> Report:
    """Import all threads of a source; `kind` is its format, one of FORMATS.

    The source is only read. A second import continues where the first one stopped and stores nothing twice.
    `dry_run` stores nothing and reports what an import would do; `hf` may then be None. `accept_mismatch` imports
    checkpoints whose checksum does not match; files larger than `max_file_bytes` are skipped.
    InvalidArgument if the source does not have this format, or the format does not support an option; NotFound if
    the source does not exist; NotInstalled if an extra is needed.
    """
    options = Options(accept_mismatch=accept_mismatch, max_file_bytes=max_file_bytes)
    format_ = checked_format(kind, options)
    if hf is None and not dry_run:
        raise InvalidArgument("an import needs a store; only a dry run works without one")
    with closing(format_.open(source, hf, options)) as opened:
        return run(opened, dry_run=dry_run, progress=progress)


def checked_format(kind: str, options: Options) -> Format:
    """Return a format by its name. InvalidArgument if it does not exist or does not support a chosen option."""
    if kind not in FORMATS:
        raise InvalidArgument(f"there is no format {kind!r}; the formats are {', '.join(FORMATS)}")
    for name in options.chosen():
        if name not in FORMATS[kind].takes:
            takers = ", ".join(other for other, each in FORMATS.items() if name in each.takes)
            raise InvalidArgument(f"{name} is not an option of {kind}; it is one of {takers}")
    return FORMATS[kind]
