"""Encode the parameters of URLs and forms so that every name survives, even with newlines, NUL or lone surrogates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import HTTPConnection

from holdfast.errors import InvalidArgument

GIVEN: Final = "given"
"""The form field with the parameters that are not typed. Its encoding protects line ends, which browsers change."""

FIELDS_MOST: Final = 50


def packed(words: Mapping[str, str | int]) -> str:
    """Encode parameters as an ASCII query string."""
    return urlencode({name: str(value) for name, value in words.items()}, errors="surrogatepass")


def unpacked(query: str, most: int | None = None) -> dict[str, str]:
    """Decode a query string. The last of repeated parameters counts. Raises InvalidArgument for more than `most`."""
    for errors in ("surrogatepass", "replace"):
        try:
            return dict(parse_qsl(query, keep_blank_values=True, errors=errors, max_num_fields=most))
        except UnicodeDecodeError:
            continue  # not written by this web UI
        except ValueError as error:
            raise InvalidArgument(f"a form has at most {most} fields") from error
    raise AssertionError


def opened(words: dict[str, str]) -> dict[str, str]:
    """Merge the parameters that a form carried in its field `given` into the others."""
    rest = {name: value for name, value in words.items() if name != GIVEN}
    return {**rest, **unpacked(words.get(GIVEN, ""))}


def query_of(request: HTTPConnection) -> str:
    """Return the query string of a request as it was sent. Starlette's own property fails if it is not UTF-8."""
    sent: bytes = request.scope.get("query_string", b"")
    return sent.decode("latin-1")
