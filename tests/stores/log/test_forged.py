"""Lines that are sealed as ours and say what none of ours says: every error is one of Holdfast's."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.formats.lines import reseal
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import running, saved
from holdfast.threads.scan import checkpoint_at, thread_named
from tests.stores.log.conftest import Open, log_of

DEEP = b"[" * 20_000 + b"]" * 20_000


def forge(log: Path, kind: bytes, old: bytes, new: bytes) -> None:
    """Replace something in the last line of a kind, which is sealed again."""
    lines = log.read_bytes().splitlines()
    at = max(n for n, line in enumerate(lines) if b'"t":"%b"' % kind in line)
    assert old in lines[at]
    lines[at] = reseal(b"{" + lines[at][18:].replace(old, new)).removesuffix(b"\n")
    log.write_bytes(b"\n".join(lines) + b"\n")


def look_at_the_head(store: DirectoryStore) -> None:
    row = thread_named(store, "a")
    assert row is not None
    checkpoint_at(store, row.position.thread, row.position.head)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (b"end", b'"of":"ck"', b'"of":%b' % DEEP),
        (b"end", b'"id":"', b'"id":"x'),
        (b"end", b'"id":"', b'"id":"\xc3\xa4'),
        (b"checkpoint", b'"skeleton":{', b'"skeleton":[%b,{' % DEEP),
        (b"checkpoint", b'"digest":"', b'"digest":"x'),
        (b"checkpoint", b'"id":"', b'"id":"x'),
        (b"checkpoint", b'"meta":{"', b'"meta":{"x":%b,"' % DEEP),
    ],
)
def test_a_forged_line_is_damage(
    store: DirectoryStore, open_store: Open, path: Path, kind: bytes, old: bytes, new: bytes
) -> None:
    saved(store, "a", "x", "y")
    store.close()
    forge(log_of(path, "a"), kind, old, new)
    other = open_store()
    with pytest.raises(Damaged):
        look_at_the_head(other)
    list(other.check())


@pytest.mark.parametrize(("old", "new"), [(b'"thread":', b'"thread":[%b],"x":' % DEEP), (b'"status":', b'"x":')])
def test_a_forged_run_is_damage(store: DirectoryStore, open_store: Open, path: Path, old: bytes, new: bytes) -> None:
    line, _ = running(store)
    store.close()
    forge(log_of(path, "a"), b"run", old, new)
    other = open_store()
    with pytest.raises(Damaged):
        other.run(line.number)


def test_a_group_that_is_said_to_be_huge_is_told(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line = saved(store, "a", "x", "y")
    store.close()
    forge(log_of(path, "a"), b"end", b'"of":"ck"', b'"of":"c%b"' % (b"9" * 5000))
    other = open_store()
    assert checkpoint_at(other, line.number, 2) is not None
    assert list(other.check()) != []
