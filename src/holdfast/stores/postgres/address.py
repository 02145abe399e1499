"""Parse the URL of a PostgreSQL store: a libpq URL plus the schema of the store's tables."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import InvalidArgument

DEFAULT_SCHEMA: Final = "holdfast"
# PostgreSQL truncates longer identifiers, so two stores could become one.
_LONGEST: Final = 63
# A vanished server or network sends nothing. These limit how long a connection waits for it.
_TIMES: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}
# Seconds. Longer than a transaction waits for a lock.
ANSWER_TIMEOUT: Final = 30.0
# libpq accepts several hosts, each with its own port. It would treat an invalid port like an unreachable server.
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")


class Address(NamedTuple):
    """The location of a store. `shown` identifies it in messages, without user, password and options.

    `prepares` allows prepared statements, which are session state. `announces` enables NOTIFY and LISTEN for queued
    runs. `answer_timeout` is for how many seconds a statement waits without receiving anything.
    """

    conninfo: str
    schema: str
    shown: str
    prepares: bool
    announces: bool
    answer_timeout: float


def parse(url: str) -> Address:
    """Parse `postgresql://user@host/database?schema=name`. `InvalidArgument` if the URL is not valid."""
    if "\0" in url:
        raise InvalidArgument("a URL cannot contain a NUL character; nothing was opened")
    try:
        parts = urlsplit(url)
        # libpq takes a plus sign literally, not as a space.
        query = parts.query.replace("+", "%2B")
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        # The URL may contain a password, so neither it nor the error that quotes it is shown.
        raise _not_one() from None
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(f"{parts.scheme}://"):
        raise _not_one()
    if not all(_HOST.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")):
        raise _not_one()
    schemas = [value for name, value in options if name == "schema"]
    switches = {"prepare": "no", "notify": "yes"}
    switches |= {name: value for name, value in options if name in switches}
    for name, value in switches.items():
        if value not in ("yes", "no"):
            raise InvalidArgument(f"{name}= must be yes or no; nothing was opened")
    own = {"schema", "answer_timeout", *switches}
    rest = [(name, value) for name, value in options if name not in own]
    schema = schemas[0] if schemas else DEFAULT_SCHEMA
    if (
        len(schemas) > 1
        or not 1 <= len(schema.encode("utf-8", "replace")) <= _LONGEST
        or schema.startswith("pg_")
        or not schema.isprintable()
    ):
        raise InvalidArgument(
            f"schema= must be one name of 1 to {_LONGEST} printable bytes that does not start with pg_; "
            "nothing was opened"
        )
    given = {name for name, _ in rest}
    rest += [(name, value) for name, value in _TIMES.items() if name not in given]
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest, quote_via=quote), ""))
    try:
        conninfo_to_dict(conninfo)
    except psycopg.Error:
        raise _not_one() from None
    host = parts.netloc.rpartition("@")[2] or dict(rest).get("host", "localhost")
    shown = f"postgresql://{host}/{unquote(parts.path.lstrip('/'))} (schema {schema})"
    limit = _seconds(dict(options).get("answer_timeout"))
    return Address(conninfo, schema, shown, switches["prepare"] == "yes", switches["notify"] == "yes", limit)


def _seconds(text: str | None) -> float:
    if text is None:
        return ANSWER_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < math.inf:
        raise InvalidArgument("answer_timeout= must be a number of seconds, more than 0; nothing was opened")
    return seconds


def _not_one() -> InvalidArgument:
    return InvalidArgument(
        'the URL is not valid; nothing was opened. Write "postgresql://user:password@host:port/database?schema=name", '
        "with special characters in the user and password as %XX."
    )
