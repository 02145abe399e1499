"""Objects of a bucket: read, list, and write under a condition. A write whose answer was lost is found out.

Every write names the state that it expects. A server that ignores the condition is refused (`bucket_store.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import obstore
from obstore import exceptions as failures

from holdfast.errors import HoldfastError, OutcomeUnknown, ReadOnly, StoreError
from holdfast.signals import sleep
from holdfast.stores.log.device import Version

T = TypeVar("T")

_PATIENCE: Final = 30.0  # seconds for which a request that failed is repeated
_PAUSE: Final = 0.1
PAGE: Final = 1000  # objects that a server lists with one request
# The client repeats requests on its own, but only briefly: here it is known which of them may be repeated.
OPTIONS: Final[dict[str, Any]] = {
    "client_options": {"timeout": timedelta(seconds=20), "connect_timeout": timedelta(seconds=5)},
    "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=20)},
}
_FINAL: Final = (
    failures.PermissionDeniedError,
    failures.UnauthenticatedError,
    failures.NotSupportedError,
    failures.InvalidPathError,
)


class Found(NamedTuple):
    """An object: its content, and its version. It changed at a time of the server's clock (µs since 1970)."""

    data: bytes
    version: Version


class Taken(Exception):
    """A conditional write was not carried out. `found` is the object that is there; None if it was removed."""

    def __init__(self, found: Found | None) -> None:
        self.found = found


class Listed(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    written: int


class Objects:
    """The objects under a prefix. Counts its requests by kind. Safe for threads."""

    def __init__(self, store: Any, place: str, folder: str = "", *, patience: float = _PATIENCE) -> None:
        """`store` is a store of obstore. `place` names it in messages. `folder` starts all keys, and ends with `/`."""
        self.place = place
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._store = store
        self._folder = folder
        self._patience = patience

    def within(self, folder: str) -> Objects:
        """The objects of a folder. They have counters of their own."""
        return Objects(self._store, f"{self.place}/{folder}", f"{self._folder}{folder}/", patience=self._patience)

    # -- reading ----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Found | None:
        """An object; None if it does not exist."""

        def ask() -> Found:
            answer = obstore.get(self._store, self._folder + key)
            return Found(bytes(answer.bytes()), _version(answer.meta))

        found = self._repeat("get", ask)
        self.bytes["get"] += 0 if found is None else len(found.data)
        return found

    def head(self, key: str) -> Version | None:
        """The version of an object; None if it does not exist."""
        return self._repeat("head", lambda: _version(obstore.head(self._store, self._folder + key)))

    def list(self, prefix: str, *, after: str = "", last: str = "~", most: int = 0) -> Sequence[Listed]:
        """Objects under a prefix, in order, with keys above `after` and up to `last`.

        The server lists at most `PAGE` with one request. If `most` is given, there is only one request, for so many.
        """

        def ask() -> Sequence[Listed]:
            start = self._folder + after if after else None
            pages: Iterator[Sequence[Any]] = iter(
                obstore.list(self._store, self._folder + prefix, offset=start, chunk_size=most or PAGE)
            )
            listed = [one for page in islice(pages, 1 if most else None) for one in page]
            return [
                Listed(str(one["path"]).removeprefix(self._folder), one["size"], _micros(one["last_modified"]))
                for one in listed
            ]

        found = self._repeat("list", ask) or ()
        self.requests["list"] += max(len(found) - 1, 0) // PAGE
        return [each for each in found if each.key <= last]

    def pages(self, prefix: str, *, after: str = "", last: str = "~") -> Iterator[Listed]:
        """List objects page by page: a caller that needs only the first ones asks for no more."""
        while page := self.list(prefix, after=after, last=last, most=PAGE):
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].key

    def folders(self, prefix: str) -> Sequence[str]:
        """The names directly under a prefix that have objects below them, in order."""

        def ask() -> Sequence[str]:
            found = obstore.list_with_delimiter(self._store, self._folder + prefix)
            return [str(each).rstrip("/").rpartition("/")[2] for each in found["common_prefixes"]]

        found = self._repeat("list", ask) or ()
        self.requests["list"] += max(len(found) - 1, 0) // PAGE
        return sorted(found)

    # -- writing ----------------------------------------------------------------------------------------------------

    def create(self, key: str, data: bytes) -> Version:
        """Create an object. `Taken`, with nothing written, if there is one.

        If one with the same content is there, it counts as this writer's own, whose answer was lost.
        """
        return self._write(key, data, "create")

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        """Replace an object. `Taken`, with nothing written, if it is at another version with another content."""
        tag, _, number = str(version.identity).partition(" ")
        return self._write(key, data, {"e_tag": tag} | ({"version": number} if number else {}))

    def put(self, key: str, data: bytes) -> None:
        """Write an object, whatever is there. Only for content that is the same for every writer, or is never read."""
        self._repeat("put", lambda: obstore.put(self._store, self._folder + key, data, use_multipart=False))
        self.bytes["put"] += len(data)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects that no writer relies on. Those that do not exist are ignored."""
        for at in range(0, len(keys), 1000):
            some = [self._folder + key for key in keys[at : at + 1000]]
            self._repeat("delete", partial(_delete, self._store, some))

    def _write(self, key: str, data: bytes, mode: Any) -> Version:
        deadline = time.monotonic() + self._patience
        is_lost = False  # whether an earlier request may have been carried out
        while True:
            self.requests["put"] += 1
            try:
                made = obstore.put(self._store, self._folder + key, data, mode=mode, use_multipart=False)
            except (
                failures.AlreadyExistsError,
                failures.PreconditionError,
                FileNotFoundError,
                FileExistsError,
            ) as error:
                try:
                    found = self.get(key)
                except HoldfastError as failure:
                    raise (self._lost() if is_lost else failure) from error
                if found is not None and found.data == data:
                    return found.version
                # A server may answer so while a request for the same key is in progress: perhaps an earlier one of
                # this writer. Then it is not known yet who wins.
                if found is not None or mode != "create":
                    raise Taken(found) from None
                self._wait(deadline, error)
            except _FINAL as error:
                raise (self._lost() if is_lost else translate(error, self.place)) from error
            except failures.BaseError as error:
                # The answer is lost, or the server failed. The write may be carried out even later, and is repeated.
                is_lost = True
                self._wait(deadline, error)
            else:
                self.bytes["put"] += len(data)
                return Version(_identity(made["e_tag"], made["version"]), len(data), 0)

    def _wait(self, deadline: float, error: Exception) -> None:
        if time.monotonic() > deadline:
            raise self.unknown(f"the bucket did not answer for {self._patience:g} seconds") from error
        sleep(_PAUSE)

    def _lost(self) -> HoldfastError:
        return self.unknown("a request had no answer, and the next one failed")

    def unknown(self, reason: str) -> HoldfastError:
        """The error for a write that may have been carried out."""
        return OutcomeUnknown(
            f"{self.place}: {reason}, so it is not known whether the write was carried out. Call latest() when the "
            "bucket can be reached again."
        )

    def _repeat(self, kind: str, ask: Callable[[], T]) -> T | None:
        """Call a function that may be called again, until it succeeds. None if the object does not exist."""
        deadline = time.monotonic() + self._patience
        while True:
            self.requests[kind] += 1
            try:
                return ask()
            except FileNotFoundError as error:
                if kind == "put":
                    raise translate(error, self.place, kind) from error
                return None
            except _FINAL as error:
                raise translate(error, self.place) from error
            except failures.BaseError as error:
                if time.monotonic() > deadline or _has_no_bucket(kind, error):
                    raise translate(error, self.place, kind) from error
                sleep(_PAUSE)


def translate(error: Exception, place: str, request: str = "") -> HoldfastError:
    """The error to raise from an error of obstore. Its text may have keys of the account, so only its kind is given."""
    kind = type(error).__name__
    if _has_no_bucket(request, error):
        return StoreError(f"{place}: there is no such bucket; nothing was changed. Create it, or check its name.")
    if isinstance(error, failures.PermissionDeniedError | failures.UnauthenticatedError):
        return ReadOnly(
            f"{place}: the bucket refused the request ({kind}); nothing was changed. Check the credentials and the "
            "permissions to read, write, list and delete objects."
        )
    return StoreError(f"{place}: the bucket cannot be reached ({kind}); nothing was changed. Try again.")


def _has_no_bucket(request: str, error: Exception) -> bool:
    """Whether a request failed because its bucket does not exist. A prefix without objects is not an error."""
    return (request == "list" and "404 Not Found" in str(error)) or (
        request == "put" and isinstance(error, FileNotFoundError)
    )


def _delete(store: Any, keys: list[str]) -> None:
    try:
        obstore.delete(store, keys)
    except FileNotFoundError:
        for key in keys if len(keys) > 1 else []:
            _delete(store, [key])


def _version(meta: Any) -> Version:
    return Version(_identity(meta["e_tag"], meta["version"]), meta["size"], _micros(meta["last_modified"]))


def _identity(tag: str | None, version: str | None) -> str:
    return f"{tag} {version}" if version else str(tag)


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
