"""Redaction: change texts before they are stored. The program's own objects are never changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from holdfast.errors import InvalidArgument, Unsupported

REDACTED: Final = "[redacted]"

# A deeper value would raise RecursionError. The codec refuses values nested deeper than 200, and names the path in its
# error, so the limit here is higher.
_DEPTH: Final = 220
_REMEMBERED: Final = 32 << 20  # bytes of texts to remember, about; at most twice as many are held
_ENTRY: Final = 100  # bytes of overhead per remembered text


class Redaction:
    """Applies a function to every text in a value, including the keys of dicts. Thread-safe.

    Results are remembered, so the function must return the same for equal texts. Without a function nothing changes.
    """

    def __init__(self, function: Callable[[str], str] | None = None) -> None:
        if function is not None and not callable(function):
            raise InvalidArgument("redact must be a function that takes a string and returns a string")
        self._function = function
        self._young: dict[str, str] = {}
        self._old: dict[str, str] = {}
        self._weight = 0

    @property
    def placeholder(self) -> str | None:
        """The text that is stored instead of a value declared as a secret; None if nothing is redacted."""
        return None if self._function is None else REDACTED

    def value(self, value: Any) -> Any:
        """Return a plain value with its texts redacted: the value itself if nothing changes, otherwise a copy.

        `Unsupported` if the function raises or does not return a str.
        """
        return value if self._function is None else self._value(value, 0)

    def copy(self, value: Any) -> Any:
        """Redact as `value` does, and copy what does not change: another thread may add a text before it is stored."""
        return value if self._function is None else self._value(value, 0, is_copied=True)

    def restorable_copy(self, plain: Any, restore: Callable[[Any], Any]) -> Any:
        """Redact as `copy` does. `Unsupported` if `restore` refuses the result: it could be stored, but not loaded."""
        redacted = self.copy(plain)
        if redacted is not plain and redacted != plain:
            try:
                restore(redacted)
            except InvalidArgument as error:
                raise Unsupported(
                    "$", "the redacted value does not fit the type of the state; nothing was stored"
                ) from error
        return redacted

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Redact the arguments of a call. Their names are not changed."""
        if self._function is None:
            return given
        redacted = {name: self.value(item) for name, item in given.items()}
        return given if all(map(_is, redacted.values(), given.values())) else redacted

    def text(self, text: str) -> str:
        """Redact a text. `Unsupported` as for `value`."""
        if self._function is None:
            return text
        known = self._young.get(text)
        if known is None:
            known = self._old.get(text)
            if known is None:
                known = self._redacted(self._function, text)
            self._remember(text, known)
        return known

    def texts(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Redact texts."""
        return tuple(map(self.text, texts))

    def message(self, text: str) -> str:
        """Redact the text of an error. If the function fails, "[redacted]": the error must be recorded anyway."""
        try:
            return self.text(text)
        except Unsupported:
            return REDACTED

    def _redacted(self, function: Callable[[str], str], text: str) -> str:
        try:
            redacted: object = function(text)
        except Exception as error:
            raise Unsupported("$", f"redact= raised {type(error).__name__}; nothing was recorded") from error
        if type(redacted) is not str:
            raise Unsupported("$", f"redact= returned {type(redacted).__name__}, not str; nothing was recorded")
        return text if redacted == text else redacted

    def _remember(self, text: str, redacted: str) -> None:
        # No lock: if two threads are here at once, some results are forgotten early and computed again.
        self._young[text] = redacted
        self._weight += len(text) + len(redacted) + _ENTRY
        if self._weight > _REMEMBERED:
            self._old, self._young, self._weight = self._young, {}, 0

    def _value(self, value: Any, depth: int, *, is_copied: bool = False) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind not in _CONTAINERS:
            return value
        if depth > _DEPTH:
            raise Unsupported("$", "it is nested too deeply; nothing was recorded. Store a flatter value.")
        if kind is dict:
            return self._dict(value.copy() if is_copied else value, depth + 1, is_copied)
        redacted = [self._value(item, depth + 1, is_copied=is_copied) for item in (list(value) if is_copied else value)]
        if not is_copied and all(map(_is, redacted, value)):
            return value
        return redacted if kind is list else kind(redacted)

    def _dict(self, value: dict[Any, Any], depth: int, is_copied: bool) -> dict[Any, Any]:
        redacted: dict[Any, Any] = {}
        is_changed = is_copied
        for key, item in value.items():
            new_key, new_item = self._value(key, depth), self._value(item, depth, is_copied=is_copied)
            is_changed = is_changed or new_key is not key or new_item is not item
            redacted[_free(new_key, redacted) if new_key in redacted else new_key] = new_item
        return redacted if is_changed else value


_CONTAINERS: Final = frozenset({dict, list, tuple, set, frozenset})
AS_IS: Final = Redaction()


def _is(one: object, other: object) -> bool:
    return one is other


def _free(key: Any, taken: dict[Any, Any]) -> str:
    """Return a variant of a key that is not in use, so that keys redacted to the same text keep both values."""
    if type(key) is not str:
        raise Unsupported(
            "$", "two keys of a dict become the same when redacted; nothing was recorded. Use strings as keys."
        )
    number = 2
    while f"{key} ({number})" in taken:
        number += 1
    return f"{key} ({number})"


# The time grows linearly with the text: repetitions are bounded, or a match cannot start inside another one.
_KEYS: Final = re.compile(
    r"""-----BEGIN\ (?:[A-Z0-9]+\ ){0,4}PRIVATE\ KEY(?:\ BLOCK)?-----(?:(?!-----END).)*+(?:-----END[A-Z0-9\ ]*-----)?
      | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}      # JWT
      | (?<![A-Za-z0-9])(?:
            sk-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}                  # OpenAI, Anthropic, OpenRouter
          | (?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])              # AWS
          | gh[oprsu]_[A-Za-z0-9]{36,} | github_pat_[A-Za-z0-9_]{22,}       # GitHub
          | gl(?:pat|rt|dt|ptt)-[A-Za-z0-9_-]{20,}                          # GitLab
          | xox[abceoprs]-[A-Za-z0-9-]{10,} | xapp-[0-9]-[A-Za-z0-9-]{10,}  # Slack
          | AIza[A-Za-z0-9_-]{35} | ya29\.[A-Za-z0-9_-]{20,} | GOCSPX-[A-Za-z0-9_-]{20,}  # Google
          | (?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,} | whsec_[A-Za-z0-9+/=]{20,}          # Stripe
          | hf_[A-Za-z0-9]{30,} | gsk_[A-Za-z0-9]{30,} | xai-[A-Za-z0-9]{30,} | r8_[A-Za-z0-9]{30,}
          | npm_[A-Za-z0-9]{36} | pypi-[A-Za-z0-9_-]{50,} | dop_v1_[0-9a-f]{64}
          | SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}                  # SendGrid
          | SK[0-9a-f]{32}(?![0-9A-Za-z])                                   # Twilio
        )""",
    re.VERBOSE | re.DOTALL,
)
_AFTER: Final = re.compile(
    r"""( (?<![A-Za-z0-9])bearer[\ \t]{1,8}
        | (?<![A-Za-z0-9])authorization["']?[\ \t]{0,8}[:=][\ \t]{0,8}["']?(?:basic|token)[\ \t]{1,8}
        | aws_(?:secret_access_key|session_token)["']?[\ \t]{0,8}[:=][\ \t]{0,8}["']?
        )[A-Za-z0-9._~+/=-]{16,}
      # The password in a URL. It may contain an unescaped "/" or "@". A port is not a password.
      | ([a-z][a-z0-9+.-]{1,20}://[^/\s:@]{0,128}:)(?!\d{1,5}/)
        (?:[^/\s@]{1,512}|[^\s@"'<>]{1,512})(?:@[^/\s@"'<>,;]{1,128}){0,4}(?=@)
    """,
    re.VERBOSE | re.IGNORECASE,
)


def api_keys(text: str) -> str:
    """Replace everything that looks like an API key, a token or a private key by "[redacted]". Pass it as `redact=`.

    It recognises the prefixes of common providers' keys, JWTs, PEM private keys, what follows "Bearer", and passwords
    in URLs. A key without a recognisable form is not found.

    >>> api_keys("curl -H 'Authorization: Bearer abcdefghijklmnop1234'")
    "curl -H 'Authorization: Bearer [redacted]'"
    """
    return _AFTER.sub(_kept, _KEYS.sub(REDACTED, text))


def _kept(found: re.Match[str]) -> str:
    return f"{found[1] or found[2]}{REDACTED}"
