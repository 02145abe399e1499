"""Words of addresses and forms, such that every name comes back: with line ends, NUL, or half a surrogate pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import HTTPConnection

from holdfast.errors import InvalidArgument

GIVEN: Final = "given"
"""The field in which a form carries what nobody typed. A browser changes line ends in fields, and none in this one."""

FIELDS_MOST: Final = 50


def packed(words: Mapping[str, str | int]) -> str:
    """Words as a query: ASCII, whatever is in them."""
    return urlencode({name: str(value) for name, value in words.items()}, errors="surrogatepass")


def unpacked(query: str, most: int | None = None) -> dict[str, str]:
    """The words of a query, the last where one is there twice. InvalidArgument for more than `most`."""
    for errors in ("surrogatepass", "replace"):
        try:
            return dict(parse_qsl(query, keep_blank_values=True, errors=errors, max_num_fields=most))
        except UnicodeDecodeError:
            continue  # bytes that no text has: somebody else wrote this
        except ValueError as error:
            raise InvalidArgument(f"a form has at most {most} fields") from error
    raise AssertionError


def opened(words: dict[str, str]) -> dict[str, str]:
    """Words with those that a form carried in its field."""
    rest = {name: value for name, value in words.items() if name != GIVEN}
    return {**rest, **unpacked(words.get(GIVEN, ""))}


def query_of(request: HTTPConnection) -> str:
    """The query of a request as it was sent. Starlette's own fails where that is no UTF-8."""
    sent: bytes = request.scope.get("query_string", b"")
    return sent.decode("latin-1")
