"""What a caller writes to name a PostgreSQL store: a libpq address, and the schema the store's tables are in."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import InvalidArgument

DEFAULT_SCHEMA: Final = "holdfast"
# What PostgreSQL keeps of an identifier: longer ones would be cut, and two stores become one.
_LONGEST: Final = 63
# A server, or a network, that has vanished says nothing: it is given up once nothing was heard of it for so long.
_TIMES: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}
# libpq takes several hosts, each with a port of its own; a bad port it would take for a server that is away.
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")


class Address(NamedTuple):
    """Where a store is. `shown` names it in messages, without user, password or options.

    `prepares` is whether statements may be prepared, which is state of a session; `announces` whether other processes
    are notified of runs that are queued, and theirs are listened for.
    """

    conninfo: str
    schema: str
    shown: str
    prepares: bool
    announces: bool


def parse(url: str) -> Address:
    """The parts of `postgresql://user@host/database?schema=name`. `InvalidArgument` if it is not such a thing."""
    if "\0" in url:
        raise InvalidArgument("an address cannot hold a NUL character")
    try:
        parts = urlsplit(url)
        # A plus is a plus to libpq, and not a space.
        query = parts.query.replace("+", "%2B")
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        # The address may hold a password: no part of it is quoted, nor is the error that quotes it.
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
            raise InvalidArgument(f"{name}= is yes or no; nothing was opened")
    rest = [(name, value) for name, value in options if name != "schema" and name not in switches]
    schema = schemas[0] if schemas else DEFAULT_SCHEMA
    if (
        len(schemas) > 1
        or not 1 <= len(schema.encode("utf-8", "replace")) <= _LONGEST
        or schema.startswith("pg_")
        or not schema.isprintable()
    ):
        raise InvalidArgument(
            f"schema= names one schema, in 1 to {_LONGEST} bytes that can be printed, and that does not begin with "
            "pg_; nothing was opened"
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
    return Address(conninfo, schema, shown, switches["prepare"] == "yes", switches["notify"] == "yes")


def _not_one() -> InvalidArgument:
    return InvalidArgument(
        'write "postgresql://user:password@host:port/database?schema=name"; special characters in the user or the '
        "password are written as %XX"
    )
