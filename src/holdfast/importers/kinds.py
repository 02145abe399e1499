"""The formats that can be imported, by name, and `import_from`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers import ares, claude, continuum, jsonl, langgraph, openai_agents, smooth
from holdfast.importers.frame import FILE_MAX, ImportSource, Options, Progress, Report, run

Opener = Callable[[str, Holdfast | None, Options], ImportSource]


class Format(NamedTuple):
    """One format. `open` opens a source, to be imported into a store; without a store only a dry run is possible.

    `takes` names the fields of `Options` that the format supports.
    """

    summary: str
    source: str
    open: Opener
    takes: tuple[str, ...] = ()


_FILES = ("replace", "max_file_bytes")

FORMATS = {
    "jsonl": Format("a file written by `holdfast export`", "FILE", jsonl.open_jsonl, ("replace",)),
    "langgraph-sqlite": Format("threads of LangGraph's SqliteSaver", "FILE", langgraph.open_sqlite),
    "langgraph-postgres": Format("threads of LangGraph's PostgresSaver", "URL", langgraph.open_postgres),
    "ares": Format("checkpoints of ares-server", "DIR", ares.open_ares, _FILES),
    "continuum": Format("session folders of Continuum", "DIR", continuum.open_continuum, (*_FILES, "accept_mismatch")),
    "smooth-file": Format("checkpoints of Smooth's FileCheckpointStore", "DIR", smooth.open_files, _FILES),
    "smooth-sqlite": Format("checkpoints of Smooth's SqliteCheckpointStore", "FILE", smooth.open_sqlite, _FILES),
    "openai-agents-sqlite": Format(
        "sessions of the OpenAI Agents SDK's SQLiteSession", "FILE", openai_agents.open_openai_agents, _FILES
    ),
    "claude-transcript": Format(
        "sessions of Claude Code and the Claude Agent SDK", "FILE or DIR", claude.open_claude, _FILES
    ),
}


def import_from(
    hf: Holdfast | None,
    kind: str,
    source: str,
    *,
    dry_run: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
    accept_mismatch: bool = False,
    max_file_bytes: int = FILE_MAX,
) -> Report:
    """Import all threads of a source; `kind` is its format, one of FORMATS.

    The source is only read. A thread that exists is skipped; with `replace` it is dropped and imported again, if the
    source can be read completely. After an import that was stopped, import again. `dry_run` stores nothing and reports
    what an import would do; `hf` may then be None. `accept_mismatch` imports checkpoints whose checksum does not match;
    files larger than `max_file_bytes` are skipped.
    InvalidArgument if the source does not have this format, or the format does not support an option; NotFound if
    the source does not exist; NotInstalled if an extra is needed.
    """
    options = Options(replace=replace, accept_mismatch=accept_mismatch, max_file_bytes=max_file_bytes)
    format_ = checked_format(kind, options)
    if hf is None and not dry_run:
        raise InvalidArgument("an import needs a store; only a dry run works without one")
    with closing(format_.open(source, hf, options)) as opened:
        return run(opened, dry_run=dry_run, replace=replace, progress=progress)


def checked_format(kind: str, options: Options) -> Format:
    """Return a format by its name. InvalidArgument if it does not exist or does not support a chosen option."""
    if kind not in FORMATS:
        raise InvalidArgument(f"there is no format {kind!r}; the formats are {', '.join(FORMATS)}")
    for name in options.chosen():
        if name not in FORMATS[kind].takes:
            takers = ", ".join(other for other, each in FORMATS.items() if name in each.takes)
            raise InvalidArgument(f"{name} is not an option of {kind}; it is one of {takers}")
    return FORMATS[kind]
