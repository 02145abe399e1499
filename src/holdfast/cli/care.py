"""Care of a store: verify, fingerprint, backup, repair, optimize, rekey and doctor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from holdfast.cli.command import Output, argument, one_of, option, verb
from holdfast.cli.layout import finding_lines
from holdfast.cli.location import Location, shown
from holdfast.cli.terminal import Exit, Show, joined, message_of, progress, styled, wrapped
from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.handle import open as open_handle
from holdfast.inspect import Check, checkup
from holdfast.maintenance import untouched
from holdfast.text import counted, line, sized
from holdfast.types import VerifyProgress

if TYPE_CHECKING:
    from rich.text import Text


@verb()
@option("--deep", "check everything (the default)")
@option("--quick", "skip the contents and their digests")
@option("--fingerprint FILE", "compare with a fingerprint of `holdfast fingerprint`", Path)
def verify(location: Location, deep: bool, quick: bool, fingerprint: Path | None) -> Output:
    """Check everything a store holds in a namespace: structures, checksums, digest chains, journals and runs.

    Reports damage, and exits with 1 if there is any. --quick skips the contents and is faster. --fingerprint FILE
    compares with a fingerprint that `holdfast fingerprint` wrote, and reports threads that are older than it or
    missing; this detects a store that was replaced by an older copy. The store can be in use meanwhile.
    """
    one_of(("--deep", deep), ("--quick", quick))
    mark = None if fingerprint is None else _read(fingerprint)
    with location.open_existing() as hf, progress("structures") as show:
        report = hf.verify(deep=not quick, fingerprint=mark, progress=lambda done: _verified(show, done))
    what = f"{counted(report.threads, 'thread')}, {counted(report.checkpoints, 'checkpoint')}"
    told = f"{what}: {'no problems' if report.ok else counted(len(report.problems), 'problem')}"
    data = {"ok": report.ok, **asdict(report)}
    return Output(data, [*finding_lines(report.problems), told], code=Exit(not report.ok))


def _verified(show: Show, done: VerifyProgress) -> None:
    show(f"threads ({done.bytes >> 20} MiB)", done.done, done.total)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read {path} ({error.strerror}); nothing was checked. Check the path.") from error
    except UnicodeDecodeError:
        raise InvalidArgument(
            f"{path} was not written by `holdfast fingerprint`; nothing was checked. Name another file."
        ) from None


@verb(bar="reading")
def fingerprint(hf: Holdfast) -> Output:
    """Write a fingerprint of every thread of a namespace to stdout. Keep it outside the store.

    `holdfast verify --fingerprint FILE` compares the store with it, and so detects a store that was replaced by an
    older copy. The fingerprint takes about 100 bytes per thread and contains the threads' names. For an encrypted store
    it is signed.
    """
    text = hf.fingerprint()
    return Output({"fingerprint": text}, text.removesuffix("\n"))


@verb(bar="copying")
@argument("TARGET")
def backup(hf: Holdfast, show: Show, target: str) -> Output:
    """Copy a store to TARGET as one consistent snapshot, then verify the copy. Writers can continue meanwhile.

    TARGET is of the same kind as the store: a path, or dir:path. It must not exist. All namespaces are copied.
    Encrypted data stays encrypted. For PostgreSQL, use pg_dump instead.
    """
    made = hf.backup(target, progress=lambda done, of: show("copying" if done < of else "checking the copy", done, of))
    report = made.report
    sound = "verified" if report.ok else f"{counted(len(report.problems), 'problem')}, copied from the store"
    told = f"{made.target}: {sized(made.bytes)}, {counted(report.threads, 'thread')}, {sound}"
    data = {"target": made.target, "bytes": made.bytes, "ok": report.ok, **asdict(report)}
    return Output(data, [*finding_lines(report.problems), told], code=Exit(not report.ok))


@verb(bar="reading")
@argument("TARGET")
def repair(location: Location, show: Show, target: str) -> Output:
    """Copy the readable part of a damaged store's namespace into a new store TARGET, and report what was lost.

    TARGET is an empty store of any kind: a path, dir:path, or a URL. Ids, order, labels, metadata, times, runs and
    journals are kept. A damaged checkpoint is replaced by a tombstone. The old store is not changed: if it is a file, a
    copy of it is read. Exits with 1 if something was lost. Stop all writers of the store first.
    """
    with (
        untouched(location.existing(), near=target) as address,
        open_handle(address, namespace=location.namespace) as hf,
    ):
        done = hf.repair(target, progress=lambda done: _verified(show, done))
    what = f"{counted(done.threads, 'thread')}, {counted(done.checkpoints, 'checkpoint')}"
    told = f"{what}, {counted(done.entries, 'journal entry')} copied"
    data = {"ok": done.ok, **asdict(done)}
    return Output(data, [*finding_lines(done.lost), told], code=Exit(not done.ok))


@verb(bar="merging")
def optimize(location: Location) -> Output:
    """Merge small segments, delete unreferenced data, and return free space to the file system.

    Readers and writers can continue meanwhile. A store of an earlier format is upgraded first. Exits with 1 if damaged
    segments were found and left unchanged; `holdfast verify` lists the damage.
    """
    with location.open_existing(upgrades=True) as hf:
        done = hf.optimize()
    left = f", {done.damaged} damaged left unchanged" if done.damaged else ""
    told = f"{counted(done.merged, 'segment')} merged{left}"
    return Output(done, told, code=Exit(bool(done.damaged)))


@verb(bar="keys")
def rekey(hf: Holdfast, show: Show) -> Output:
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
        show("keys", seen, None)

    changed = hf.rekey(count)
    told = f"{counted(changed, 'key')} rewrapped" if changed else "all keys already use the current key"
    return Output({"rewrapped": changed}, told)


@verb()
def doctor(location: Location) -> Output:
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
        checks.append(Check(name="open", ok=False, what=message_of(error)))
    ok = all(check.ok for check in checks)
    lines = (each for check in checks for each in _check_lines(check))
    return Output({"ok": ok, "checks": checks}, lines, code=Exit(not ok))


def _check_lines(check: Check) -> Iterator[str | Text]:
    mark = styled("ok ", "green") if check.ok else styled("BAD", "red")
    first, *more = wrapped(line(check.what), " " * 16)
    yield joined([mark, f"{check.name:<11}", first.lstrip()], " ")
    yield from more
