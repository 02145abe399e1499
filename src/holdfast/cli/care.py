"""Care of a store: verify, fingerprint, backup, repair, optimize, rekey and doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.layout import finding_data, finding_lines
from holdfast.cli.location import Location, shown
from holdfast.cli.parameters import one_of, verb
from holdfast.cli.terminal import Exit, Show, emit, joined, progress, put_json, styled, wrapped, write
from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.handle import open as open_handle
from holdfast.inspect import Check, checkup, data_of
from holdfast.maintenance import untouched
from holdfast.text import counted, line, sized
from holdfast.types import VerifyProgress

if TYPE_CHECKING:
    from rich.text import Text

_INDENT: Final = 16


@verb()
@click.option("--deep", is_flag=True, help="check everything (the default)")
@click.option("--quick", is_flag=True, help="skip the contents and their digests")
@click.option("--fingerprint", metavar="FILE", type=Path, help="compare with a fingerprint of `holdfast fingerprint`")
def verify(location: Location, as_json: bool, deep: bool, quick: bool, fingerprint: Path | None) -> Exit:
    """Check everything a store holds in a namespace: structures, checksums, digest chains, journals and runs.

    Reports damage, and exits with 1 if there is any. --quick skips the contents and is faster. --fingerprint FILE
    compares with a fingerprint that `holdfast fingerprint` wrote, and reports threads that are older than it or
    missing; this detects a store that was replaced by an older copy. The store can be in use meanwhile.
    """
    one_of(("--deep", deep), ("--quick", quick))
    mark = None if fingerprint is None else _read(fingerprint)
    with location.open_existing() as hf, progress("structures") as show:
        report = hf.verify(deep=not quick, fingerprint=mark, progress=_verified(show))
    found = {"ok": report.ok, "threads": report.threads, "checkpoints": report.checkpoints}
    what = f"{counted(report.threads, 'thread')}, {counted(report.checkpoints, 'checkpoint')}"
    told = f"{what}: {'no problems' if report.ok else counted(len(report.problems), 'problem')}"
    problems = report.problems
    emit(as_json, {**found, "problems": finding_data(problems)}, [*finding_lines(problems), told])
    return Exit.OK if report.ok else Exit.ERROR


def _verified(show: Show | None) -> Callable[[VerifyProgress], None] | None:
    if show is None:
        return None
    return lambda done: show(f"threads ({done.bytes >> 20} MiB)", done.done, done.of)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read {path} ({error.strerror})") from error
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not a fingerprint from `holdfast fingerprint`") from None


@verb()
def fingerprint(location: Location, as_json: bool) -> Exit:
    """Write a fingerprint of every thread of a namespace to stdout. Keep it outside the store.

    `holdfast verify --fingerprint FILE` compares the store with it, and so detects a store that was replaced by an
    older copy. The fingerprint takes about 100 bytes per thread and contains the threads' names. For an encrypted store
    it is signed.
    """
    with location.open_existing() as hf, progress("reading"):
        text = hf.fingerprint()
    if as_json:
        put_json({"fingerprint": text})
    else:
        write(text)
    return Exit.OK


@verb()
@click.argument("target", metavar="TARGET")
def backup(location: Location, as_json: bool, target: str) -> Exit:
    """Copy a store to TARGET as one consistent snapshot, then verify the copy. Writers can continue meanwhile.

    TARGET is of the same kind as the store: a path, or dir:path. It must not exist. All namespaces are copied.
    Encrypted data stays encrypted. For PostgreSQL, use pg_dump instead.
    """
    with location.open_existing() as hf, progress("copying") as show:
        made = hf.backup(target, progress=_copied(show))
    report = made.report
    found = {"target": made.target, "bytes": made.bytes, "ok": report.ok, "threads": report.threads}
    sound = "verified" if report.ok else f"{counted(len(report.problems), 'problem')}, copied from the store"
    told = f"{made.target}: {sized(made.bytes)}, {counted(report.threads, 'thread')}, {sound}"
    data = {**found, "checkpoints": report.checkpoints, "problems": finding_data(report.problems)}
    emit(as_json, data, [*finding_lines(report.problems), told])
    return Exit.OK if report.ok else Exit.ERROR


def _copied(show: Show | None) -> Callable[[int, int], None] | None:
    if show is None:
        return None
    return lambda done, of: show("copying" if done < of else "checking the copy", done, of)


@verb()
@click.argument("target", metavar="TARGET")
def repair(location: Location, as_json: bool, target: str) -> Exit:
    """Copy the readable part of a damaged store's namespace into a new store TARGET, and report what was lost.

    TARGET is an empty store of any kind: a path, dir:path, or a URL. Ids, order, labels, metadata, times, runs and
    journals are kept. A damaged checkpoint is replaced by a tombstone. The old store is not changed: if it is a file, a
    copy of it is read. Exits with 1 if something was lost. Stop all writers of the store first.
    """
    with (
        untouched(location.existing(), near=target) as address,
        open_handle(address, namespace=location.namespace) as hf,
        progress("reading") as show,
    ):
        done = hf.repair(target, progress=_verified(show))
    found = {"ok": done.ok, "threads": done.threads, "checkpoints": done.checkpoints, "entries": done.entries}
    what = f"{counted(done.threads, 'thread')}, {counted(done.checkpoints, 'checkpoint')}"
    told = f"{what}, {counted(done.entries, 'journal entry')} copied"
    data = {**found, "redigested": done.redigested, "lost": finding_data(done.lost)}
    emit(as_json, data, [*finding_lines(done.lost), told])
    return Exit.OK if done.ok else Exit.ERROR


@verb()
def optimize(location: Location, as_json: bool) -> Exit:
    """Merge small segments, delete unreferenced data, and return free space to the file system.

    Readers and writers can continue meanwhile. A store of an earlier format is upgraded first. Exits with 1 if damaged
    segments were found and left unchanged; `holdfast verify` lists the damage.
    """
    with location.open_existing(upgrades=True) as hf, progress("merging"):
        done = hf.optimize()
    left = f", {done.damaged} damaged left unchanged" if done.damaged else ""
    told = f"{counted(done.merged, 'segment')} merged{left}"
    emit(as_json, {"merged": done.merged, "damaged": done.damaged}, [told])
    return Exit.ERROR if done.damaged else Exit.OK


@verb()
def rekey(location: Location, as_json: bool) -> Exit:
    """Rewrap every data key of an encrypted store with the current key, the first in $HOLDFAST_KEY.

    $HOLDFAST_KEY holds `name:key`, followed by the older keys that are still needed to read, separated by commas. First
    restart every writer with the new key: data that a writer with the old key creates later needs the old key. Stored
    data is not rewritten. After this command succeeds, the older keys are no longer needed. An error lists the keys
    that were not changed.
    """
    seen = 0

    def count(more: int) -> None:
        nonlocal seen
        seen += more
        if show is not None:
            show("keys", seen, None)

    with location.open_existing() as hf, progress("keys") as show:
        changed = hf.rekey(count)
    told = f"{counted(changed, 'key')} rewrapped" if changed else "all keys already use the current key"
    emit(as_json, {"rewrapped": changed}, [told])
    return Exit.OK


@verb()
def doctor(location: Location, as_json: bool) -> Exit:
    """Check that a store can be used: connection, reads, writes, database settings, clock, disk space and versions.

    Exits with 1 if a check fails. It does not check the stored data; `holdfast verify` does.
    """
    url = shown(location.existing())
    checks = [Check(name="store", ok=True, what=f"{url}, namespace {location.namespace}")]
    try:
        with location.open_existing() as hf:
            checks += checkup(hf)
    except NotFound:
        raise
    except HoldfastError as error:
        checks.append(Check(name="open", ok=False, what=str(error)))
    ok = all(check.ok for check in checks)
    shown_checks = (each for check in checks for each in _check_lines(check))
    emit(as_json, {"ok": ok, "checks": [data_of(check) for check in checks]}, shown_checks)
    return Exit.OK if ok else Exit.ERROR


def _check_lines(check: Check) -> Iterator[str | Text]:
    mark = styled("ok ", "green") if check.ok else styled("BAD", "red")
    first, *more = wrapped(line(check.what), " " * _INDENT)
    yield joined([mark, f"{check.name:<11}", first.lstrip()], " ")
    yield from more
