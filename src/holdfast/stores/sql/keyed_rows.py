"""Small rows under a key, replaced by compare-and-set: the claims of acts, and the wrapped keys of a namespace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores import rules
from holdfast.stores.contract import KeyRow
from holdfast.stores.contract_runs import ActRow
from holdfast.stores.rows import act_checksum
from holdfast.stores.sql.transaction import Row, Transaction

_PAGE: Final = 256
_ABOVE_ALL: Final = b"\xff" * (rules.ACT_BYTES + 1)


# -- acts: read, claim with a journal write, and replace ---------------------------------------------------------------


def acts(
    tx: Transaction, *, key: bytes | None = None, prefix: bytes = b"", after: bytes | None = None, limit: int
) -> list[ActRow]:
    if key is not None:
        return [read_act(tx.namespace, row) for row in tx.rows("act", tx.namespace, key)][: max(limit, 0)]
    ends = max(prefix, after or b""), prefix + _ABOVE_ALL  # a prefix sorts before the keys that start with it
    return [read_act(tx.namespace, row) for row in tx.rows("acts", tx.namespace, *ends, max(limit, 0))]


def claim_act(tx: Transaction, row: ActRow, expect: ActRow | None) -> None:
    """Claim an act. `ActHeld` if another entry holds it."""
    if expect is None and _insert(tx, row):
        return
    found = _locked(tx, row.key)
    if found is None:
        # The claim that prevented the insert was removed since, or the expected claim no longer exists.
        if not _insert(tx, row):
            rules.require_claim(_locked(tx, row.key), row, expect)
        return
    rules.require_claim(found, row, expect)
    if found != row:
        _replace(tx, row)


def put_act(tx: Transaction, key: bytes, expect: ActRow | None, row: ActRow | None) -> ActRow | None:
    rules.check_put_act(key, row)
    if expect is None and row is not None and _insert(tx, row):
        return row
    found = _locked(tx, key)
    if expect is None or found != expect:
        return found
    if row is None:
        tx.put("delete_act", tx.namespace, key)
    else:
        _replace(tx, row)
    return row


def read_act(namespace: bytes, row: Row) -> ActRow:
    """A claim from its columns. `Damaged` if they do not match their checksum."""
    key, thread, number, checksum = row
    if checksum != act_checksum(namespace, key, thread, number):
        shown = key.hex() if isinstance(key, bytes) else key
        raise Damaged(f"the claim of the act {shown} does not match its checksum; copy the store with hf.repair")
    return ActRow(key, thread, number)


def check_acts(tx: Transaction) -> Iterator[str]:
    """Problems of the claims of a namespace: damaged ones, and those of entries that do not exist."""
    after = b""
    while page := tx.rows("check_acts", tx.namespace, after, _PAGE):
        for key, thread, number, checksum, entries in page:
            try:
                read_act(tx.namespace, (key, thread, number, checksum))
            except Damaged as error:
                yield str(error)
            else:
                if entries is not None and number > entries:
                    what = f"journal entry {number} of the thread with number {thread}"
                    yield f"the act {key.hex()} is claimed by {what}, but there is no such entry"
        if not isinstance(page[-1][0], bytes) or page[-1][0] <= after:
            return  # a damaged table leads back to earlier rows
        after = page[-1][0]


def _locked(tx: Transaction, key: bytes) -> ActRow | None:
    found = tx.rows("lock_act", tx.namespace, key)
    return read_act(tx.namespace, found[0]) if found else None


def _insert(tx: Transaction, row: ActRow) -> bool:
    return tx.change("insert_act", tx.namespace, *_columns(tx, row)) == 1


def _replace(tx: Transaction, row: ActRow) -> None:
    tx.put("replace_act", tx.namespace, *_columns(tx, row))


def _columns(tx: Transaction, row: ActRow) -> tuple[bytes, int, int, int]:
    return row.key, row.thread, row.number, act_checksum(tx.namespace, row.key, row.thread, row.number)


# -- wrapped keys ------------------------------------------------------------------------------------------------------


def keys(tx: Transaction, *, id: bytes | None = None, after: bytes = b"", limit: int) -> list[KeyRow]:
    if id is not None:
        return [_read_key(*row) for row in tx.rows("key", tx.namespace, id)]
    return [_read_key(*row) for row in tx.rows("keys", tx.namespace, after, max(limit, 0))]


def put_key(tx: Transaction, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
    if expect is None and row is not None:
        # Another transaction may insert the same key. Then this one waits, and its key is found below.
        insert_key(tx, row, None)
    found = [_read_key(*each) for each in tx.rows("lock_key", tx.namespace, id)]
    there = found[0] if found else None
    if expect is None or there != expect:
        return there
    if row is None:
        tx.put("delete_key", tx.namespace, id)
    else:
        tx.put("replace_key", tx.namespace, id, row.name.encode(), row.wrapped)
    return row


def insert_key(tx: Transaction, row: KeyRow, thread: int | None) -> None:
    """Store a key, unless its id is taken. `thread` is the thread that it is removed with."""
    tx.put("insert_key", tx.namespace, row.id, row.name.encode(), row.wrapped, thread)


def _read_key(id: bytes, name: object, wrapped: object) -> KeyRow:
    """A key from its columns. Damaged columns may have any type, and text may not be UTF-8."""
    if isinstance(name, bytes) and isinstance(wrapped, bytes):
        with suppress(UnicodeDecodeError):
            return KeyRow(id, name.decode(), wrapped)
    return KeyRow(id, "", b"")
