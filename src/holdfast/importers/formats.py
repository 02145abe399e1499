"""The formats that can be imported, by name; what each needs is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers.frame import Progress, Report, Source, run


class Format(NamedTuple):
    """One format. `open` opens a source of it, to be moved to a store; None only looks at what there is."""

    summary: str
    source: str
    open: Callable[[str, Holdfast | None], Source]


# ruff: noqa: PLC0415 - they take what extras bring
def _langgraph_sqlite(source: str, hf: Holdfast | None) -> Source:
    from holdfast.importers.langgraph import open_sqlite

    return open_sqlite(source, hf)


def _langgraph_postgres(source: str, hf: Holdfast | None) -> Source:
    from holdfast.importers.langgraph import open_postgres

    return open_postgres(source, hf)


def _jsonl(source: str, hf: Holdfast | None) -> Source:
    from holdfast.importers.jsonl import open_jsonl

    return open_jsonl(source, hf)


FORMATS = {
    "jsonl": Format("what `holdfast export` wrote", "FILE", _jsonl),
    "langgraph-sqlite": Format("threads of LangGraph's SqliteSaver", "FILE", _langgraph_sqlite),
    "langgraph-postgres": Format("threads of LangGraph's PostgresSaver", "URL", _langgraph_postgres),
}


def import_from(
    hf: Holdfast | None, kind: str, source: str, *, dry_run: bool = False, progress: Progress | None = None
) -> Report:
    """Bring all threads of a source over; `kind` is its format, one of FORMATS.

    Run again, it goes on where it was; what is there is not stored twice. The source is only
    read. `dry_run` stores nothing and tells what would be; then `hf` may be None, for a store that is not there yet.
    InvalidArgument if it is no source of this format, NotFound if there is none, NotInstalled if an extra is needed.
    """
    if kind not in FORMATS:
        raise InvalidArgument(f"there is no format {kind!r}; there is {', '.join(FORMATS)}")
    if hf is None and not dry_run:
        raise InvalidArgument("give the store to import to; only a dry run needs none")
    with closing(FORMATS[kind].open(source, hf)) as opened:
        return run(opened, dry_run=dry_run, progress=progress)
