"""Care of a store: verify, fingerprint, backup, repair, optimize, rekey and doctor."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import click

from holdfast.cli.exits import Exit
from holdfast.cli.layout import finding_data, finding_lines
from holdfast.cli.location import Location, shown
from holdfast.cli.parameters import one_of, verb
from holdfast.cli.terminal import Show, columns, joined, progress, put, put_json, styled, write
from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.handle import open as open_handle
from holdfast.inspect import Check, checkup, data_of
from holdfast.maintenance import untouched
from holdfast.text import counted, line, sized
from holdfast.types import VerifyProgress


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
    if as_json:
        found = {"ok": report.ok, "threads": report.threads, "checkpoints": report.checkpoints}
        put_json({**found, "problems": finding_data(report.problems)})
    else:
        for each in finding_lines(report.problems):
            put(each)
        what = f"{counted(report.threads, 'thread')}, {counted(report.checkpoints, 'checkpoint')}"
        put(f"{what}: {'no problems' if report.ok else counted(len(report.problems), 'problem')}")
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
    if as_json:
        found = {"target": made.target, "bytes": made.bytes, "ok": report.ok, "threads": report.threads}
        put_json({**found, "checkpoints": report.checkpoints, "problems": finding_data(report.problems)})
    else:
        for each in finding_lines(report.problems):
            put(each)
        sound = "verified" if report.ok else f"{counted(len(report.problems), 'problem')}, copied from the store"
        put(f"{made.target}: {sized(made.bytes)}, {counted(report.threads, 'thread')}, {sound}")
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
    if as_json:
        found = {"ok": done.ok, "threads": done.threads, "checkpoints": done.checkpoints, "entries": done.entries}
        put_json({**found, "redigested": done.redigested, "lost": finding_data(done.lost)})
    else:
        for each in finding_lines(done.lost):
            put(each)
        what = f"{counted(done.threads, 'thread')}, {counted(done.checkpoints, 'checkpoint')}"
        put(f"{what}, {counted(done.entries, 'journal entry')} copied")
    return Exit.OK if done.ok else Exit.ERROR


@verb()
def optimize(location: Location, as_json: bool) -> Exit:
    """Merge small segments, delete unreferenced data, and return free space to the file system.

    Readers and writers can continue meanwhile. A store of an earlier format is upgraded first. Exits with 1 if damaged
    segments were found and left unchanged; `holdfast verify` lists the damage.
    """
    with location.open_existing(upgrades=True) as hf, progress("merging"):
        done = hf.optimize()
    if as_json:
        put_json({"merged": done.merged, "damaged": done.damaged})
    else:
        left = f", {done.damaged} damaged left unchanged" if done.damaged else ""
        put(f"{counted(done.merged, 'segment')} merged{left}")
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
    if as_json:
        put_json({"rewrapped": changed})
    else:
        put(f"{counted(changed, 'key')} rewrapped" if changed else "all keys already use the current key")
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
    if as_json:
        put_json({"ok": ok, "checks": [data_of(check) for check in checks]})
        return Exit.OK if ok else Exit.ERROR
    for check in checks:
        mark = styled("ok ", "green") if check.ok else styled("BAD", "red")
        first, *more = textwrap.wrap(line(check.what), max(min(columns(), 120) - 16, 20)) or [""]
        put(joined([mark, f"{check.name:<11}", first], " "))
        for each in more:
            put(f"{'':16}{each}")
    return Exit.OK if ok else Exit.ERROR
