"""Read untrusted files and databases of other systems: links are not followed, sizes are limited, nothing is executed.

A problem with a file raises `Unusable`. The message never contains content of the file.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

from holdfast.errors import InvalidArgument, NotFound, StoreError
from holdfast.importers.frame import CHECK_PATH, CHECK_SOURCE, FILE_MAX, Unusable

LINK: Final = "it is a link, and links are not followed"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FRACTION: Final = re.compile(r"[.,]([0-9]+)")
_FIGURES_MAX: Final = 4000  # digits of a whole number; Python reads at most 4,300
_RECOVER: Final = "import from a copy made with `sqlite3 FILE .recover`"


def source_entries(path: str) -> list[os.DirEntry[str]]:
    """The entries of the folder to import. NotFound if it does not exist, InvalidArgument if it is not a folder."""
    if not os.path.exists(path):
        raise NotFound(f"there is no folder {path}; {CHECK_PATH}")
    try:
        return entries(path)
    except Unusable as error:
        raise InvalidArgument(f"{path}: {error}; {CHECK_SOURCE}") from error


def entries(path: str) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted by name."""
    try:
        with os.scandir(path) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        raise Unusable("it no longer exists") from None
    except NotADirectoryError:
        raise Unusable("it is not a folder") from None
    except OSError as error:
        raise Unusable(f"it cannot be read ({error.strerror})") from None


def shown_name(name: str) -> str:
    """The name of a file as a valid string; a file name may be any bytes."""
    return os.fsencode(name).decode("utf-8", "replace")


def valid_text(text: str) -> str:
    """The text with lone surrogates replaced, which labels and names cannot have."""
    return text.encode("utf-8", "replace").decode()


def open_file(path: str) -> int:
    """Open a file for reading. Unusable if it is a link or not a regular file."""
    if os.path.islink(path):  # O_NOFOLLOW, where it exists, covers a link made after this check
        raise Unusable(LINK)
    try:
        opened = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise Unusable("it no longer exists") from None
    except OSError as error:
        raise Unusable(f"it cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise Unusable("it is not a regular file")
    return opened


def read(path: str, limit: int = FILE_MAX) -> bytes:
    """Read a whole file."""
    with open(open_file(path), "rb") as file:
        try:
            size = os.fstat(file.fileno()).st_size
            data = file.read(limit + 1) if size <= limit else b""
        except OSError as error:
            raise Unusable(f"it cannot be read ({error.strerror})") from None
    if size > limit or len(data) > limit:
        raise Unusable(_too_large(max(size, len(data)), limit))
    return data


def _too_large(size: int, limit: int) -> str:
    return f"it has {size} bytes, and the limit is {limit}; raise it with max_file_bytes= or --max-file-bytes"


# -- JSON -------------------------------------------------------------------------------------------------------------


def json_of(data: bytes | str) -> Any:
    """Parse JSON. Numbers that do not fit a float, NaN and duplicate members are rejected."""
    if isinstance(data, str):
        return _parsed(data)
    if not data.strip(b" \t\r\n\0"):
        raise Unusable("it is empty" if not data else "it contains no JSON")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = error.reason == "unexpected end of data"
        raise Unusable("it is cut off in the middle" if is_cut else "it is not UTF-8") from None
    return _parsed(text)


def _parsed(text: str) -> Any:
    try:
        value, end = _decoder.raw_decode(text, len(text) - len(text.lstrip()))
    except json.JSONDecodeError as error:
        if not text[error.pos :].strip() or error.msg.startswith("Unterminated"):
            raise Unusable("it is cut off in the middle") from None
        raise Unusable(f"it is not JSON: {error.msg}, in line {error.lineno}") from None
    except RecursionError:
        raise Unusable("it is nested too deeply") from None
    if text[end:].strip():
        raise Unusable("it is not JSON: more text follows the value")
    return value


def object_of(data: bytes) -> dict[str, Any]:
    """Parse a JSON object."""
    return as_object(json_of(data), "it")


def as_object(value: object, what: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise Unusable(f"{what} is not a JSON object")
    return value


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise Unusable("it contains a number that is too large for a float")
    return number


def _whole(text: str) -> int:
    if len(text) > _FIGURES_MAX:
        raise Unusable(f"it contains a number with {len(text)} digits")
    return int(text)


def _constant(name: str) -> NoReturn:
    raise Unusable(f"it contains {name}, which is not valid JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unusable("it has two members with the same name")  # one of them would be lost
    return found


_decoder: Final = json.JSONDecoder(
    parse_float=_number, parse_int=_whole, parse_constant=_constant, object_pairs_hook=_members
)


class Fields:
    """The members of a JSON object, taken out one by one. Unusable if one has the wrong type."""

    def __init__(self, members: dict[str, Any]) -> None:
        self._left = dict(members)

    def take(self, name: str, default: Any = None) -> Any:
        """Take a member of any type."""
        return self._left.pop(name, default)

    def text(self, name: str) -> str:
        """Take a non-empty string."""
        found = self.text_or_none(name)
        if not found:
            raise Unusable(f"it has no {name}")
        return found

    def text_or_none(self, name: str) -> str | None:
        found = self._left.pop(name, None)
        if found is not None and type(found) is not str:
            raise Unusable(f"its {name} is not a string")
        return found

    def whole(self, name: str) -> int:
        found = self._left.pop(name, None)
        if type(found) is not int:
            raise Unusable(f"it has no {name}" if found is None else f"its {name} is not a whole number")
        return found

    def items(self, name: str) -> list[Any]:
        """Take a list; empty if the member is missing."""
        found = self._left.pop(name, None)
        if found is None:
            return []
        if type(found) is not list:
            raise Unusable(f"its {name} is not a list")
        return found

    @property
    def rest(self) -> dict[str, Any]:
        """The members that were not taken."""
        return self._left


# -- times ------------------------------------------------------------------------------------------------------------


def moment_of_seconds(value: object) -> datetime | None:
    """Convert seconds since 1970; None if the value is not a valid time."""
    if type(value) not in (int, float):
        return None
    try:
        found = _EPOCH + timedelta(seconds=value)  # type: ignore[arg-type]  # a number, see above
    except (OverflowError, ValueError):
        return None
    return found if found >= _EPOCH else None


def moment_of_text(value: object) -> datetime | None:
    """Parse a time in ISO 8601, without an offset in UTC; None if the value is not a valid time."""
    try:
        given = datetime.fromisoformat(value) if type(value) is str else None
        if given is None:
            return None
        found = (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    except (OverflowError, ValueError):
        return None
    return found if found >= _EPOCH else None


def nanoseconds_of_text(value: object) -> int | None:
    """Parse a time as `moment_of_text` does, to nanoseconds since 1970, which a `datetime` cannot hold."""
    moment = moment_of_text(value)
    if moment is None or type(value) is not str:
        return None
    fraction = _FRACTION.search(value)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return seconds * 10**9 + (0 if fraction is None else int(fraction[1][:9].ljust(9, "0")))


# -- databases --------------------------------------------------------------------------------------------------------


class SqliteFile:
    """A SQLite file with given tables and columns. Rows that cannot be read raise `Unusable`."""

    def __init__(self, path: str, tables: Mapping[str, frozenset[str]], what: str, limit: int) -> None:
        """NotFound if the file does not exist, InvalidArgument if it is not a `what`."""
        if os.path.isdir(path):
            raise InvalidArgument(f"{path} is a folder, not a {what}; {CHECK_SOURCE}")
        if not os.path.isfile(path):
            raise NotFound(f"there is no file {path}; {CHECK_PATH}")
        self._connection = connect(path, limit)
        try:
            self._connection.execute("BEGIN")
            missing = [table for table, columns in tables.items() if not self.columns(table) >= columns]
        except sqlite3.DatabaseError as error:
            self.close()
            raise InvalidArgument(
                f"{path} cannot be read as a SQLite database: {error}; nothing was imported. Check the path and the "
                f"format. If the file is damaged, {_RECOVER}."
            ) from error
        if missing:
            self.close()
            raise InvalidArgument(
                f"{path} is not a {what}: table {missing[0]} is missing or has other columns; {CHECK_SOURCE}"
            )

    def columns(self, table: str) -> set[str]:
        """The columns of a table; empty if it does not exist. Views do not count: a view is an untrusted query."""
        found = self._connection.execute(
            "SELECT info.name FROM sqlite_schema AS it, pragma_table_info(it.name) AS info "
            "WHERE it.type = 'table' AND it.name = ?",
            (table,),
        )
        return {name for (name,) in found}

    def rows(self, sql: str, *given: Any) -> Iterator[Any]:
        """The rows of a query. Unusable if the file is damaged or a value exceeds the limit."""
        try:
            yield from self._connection.execute(sql, given)
        except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
            raise Unusable(f"SQLite cannot read it: {error}") from error

    def row(self, sql: str, number: int) -> Any:
        """One row, by its number. Unusable also if an index has it and the table does not."""
        found = [*self.rows(sql, number)]
        if not found:
            raise Unusable("SQLite cannot find it by its row number")
        return found[0]

    def listed(self, sql: str) -> list[Any]:
        """All rows of a query that the import depends on. StoreError if the file is damaged."""
        try:
            return [*self.rows(sql)]
        except Unusable as error:
            raise StoreError(f"{error}; if the file is damaged, {_RECOVER}") from error

    def close(self) -> None:
        self._connection.close()


def connect(path: str, limit: int | None = None) -> sqlite3.Connection:
    """Open a read-only connection that also reads invalid text. `limit` is the maximum length of a value."""
    uri = Path(path).absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        # In a folder without write permission SQLite can open the file only as immutable, and only without a WAL.
        connection.close()
        if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
            raise InvalidArgument(
                f"{path} has a write-ahead log that cannot be read in this folder; nothing was imported. Copy both "
                "files to a folder that you can write to."
            ) from None
        connection = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except sqlite3.DatabaseError:
        pass  # the next read reports it
    connection.text_factory = _text
    if limit is not None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _text(data: bytes) -> str:
    """Decode text without errors, so that a damaged row does not stop the reading of others."""
    return data.decode("utf-8", "surrogateescape")


# -- conversations ----------------------------------------------------------------------------------------------------


def waits_for(calls: int) -> str | None:
    """The resume hint of a conversation with tool calls that have no result, which models reject."""
    if not calls:
        return None
    return f"{calls} tool call{'s have' if calls > 1 else ' has'} no result yet"
