"""The formats that can be imported, by name, and `import_from`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers import ares, claude, continuum, jsonl, langgraph, openai_agents, smooth
from holdfast.importers.foreign_files import FILE_MAX
from holdfast.importers.frame import ImportSource, Progress, Report, run


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an import. An option that a format does not support is rejected.

    `replace`: drop threads that exist, and import them again. `accept_mismatch`: import checkpoints whose checksum does
    not match, and report them. `max_file_bytes`: the limit for a file, or for a line if files are read line by line;
    anything larger is skipped.
    """

    replace: bool = False
    accept_mismatch: bool = False
    max_file_bytes: int = FILE_MAX

    def __post_init__(self) -> None:
        for name in ("replace", "accept_mismatch"):
            if type(getattr(self, name)) is not bool:
                raise InvalidArgument(f"{name} must be True or False")
        if type(self.max_file_bytes) is not int or self.max_file_bytes < 1:
            raise InvalidArgument("max_file_bytes must be a whole number, 1 or more")

    def chosen(self) -> tuple[str, ...]:
        """The names of the options that do not have their default value."""
        fields = msgspec.structs.fields(self)
        return tuple(field.name for field in fields if getattr(self, field.name) != field.default)


class Format(NamedTuple):
    """One format. `open` opens a source, to be imported into a store; without a store only a dry run is possible.

    `takes` names the fields of `Options` that the format supports.
    """

    summary: str
    source: str
    open: Callable[[str, Holdfast | None, Options], ImportSource]
    takes: tuple[str, ...] = ()


def _of(
    opened: Callable[[str, Holdfast | None, int], ImportSource],
) -> Callable[[str, Holdfast | None, Options], ImportSource]:
    return lambda source, hf, options: opened(source, hf, options.max_file_bytes)


_FILES = ("replace", "max_file_bytes")

FORMATS = {
    "jsonl": Format(
        "a file written by `holdfast export`", "FILE", lambda path, hf, _: jsonl.open_jsonl(path, hf), ("replace",)
    ),
    "langgraph-sqlite": Format(
        "threads of LangGraph's SqliteSaver", "FILE", lambda path, hf, _: langgraph.open_sqlite(path, hf)
    ),
    "langgraph-postgres": Format(
        "threads of LangGraph's PostgresSaver", "URL", lambda url, hf, _: langgraph.open_postgres(url, hf)
    ),
    "ares": Format("checkpoints of ares-server", "DIR", _of(ares.open_ares), _FILES),
    "continuum": Format(
        "session folders of Continuum",
        "DIR",
        lambda path, hf, given: continuum.open_continuum(path, hf, given.max_file_bytes, given.accept_mismatch),
        (*_FILES, "accept_mismatch"),
    ),
    "smooth-file": Format("checkpoints of Smooth's FileCheckpointStore", "DIR", _of(smooth.open_files), _FILES),
    "smooth-sqlite": Format("checkpoints of Smooth's SqliteCheckpointStore", "FILE", _of(smooth.open_sqlite), _FILES),
    "openai-agents-sqlite": Format(
        "sessions of the OpenAI Agents SDK's SQLiteSession", "FILE", _of(openai_agents.open_openai_agents), _FILES
    ),
    "claude-transcript": Format(
        "sessions of Claude Code and the Claude Agent SDK", "FILE or DIR", _of(claude.open_claude), _FILES
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
