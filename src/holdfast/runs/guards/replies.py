"""When two answers of a model are the same: what they say, without what differs each time and means nothing."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from holdfast.codec import msgpack

# What a reply carries beside what it says: it differs, or is alike, whatever was said.
_ASIDE = frozenset(
    ("created", "encrypted_content", "finish_reason", "id", "index", "logprobs", "model", "obfuscation", "object")
) | frozenset(("role", "service_tier", "signature", "status", "stop_reason", "system_fingerprint", "type", "usage"))
_ASIDE_ENDINGS = ("_at", "_duration", "_eval_count", "_fingerprint", "_id")
# What a reply asks a tool to be called with. Compared as it is: the next page is another call.
_ARGUMENTS = frozenset(("args", "arguments", "input", "parameters", "partial_json"))

# In a text without upper case. What people count, order or book is shorter, or looks otherwise, and is compared.
_VOLATILE = re.compile(
    r"""(?<![a-z0-9])(?:
        [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}    # a UUID
      | \d{4}-\d\d-\d\d[t\ ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?  # a time of a day
      | 1\d{9}(?:\d{3}){0,3}(?:\.\d+)?                                  # since 1970, in s, ms, µs or ns
      | (?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{12,}                           # a digest
      | (?:call|toolu)_(?=[a-z]*\d)[a-z0-9]{6,}                         # an id of a provider
      | [a-z]+[_-](?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{16,}
    )(?![a-z0-9])""",
    re.VERBOSE,
)

_Path: TypeAlias = tuple[str | int, ...]


def answer_of(reply: Any) -> bytes | None:
    """What a model said, to be compared; None if it said nothing and asked for nothing.

    Of a stream what its chunks add up to, wherever it was cut.
    """
    said = _Said()
    said.gather(_without_echo(reply), ())
    return said.packed()


class _Said:
    """What a reply holds, by where it stands: pieces of a stream that stand in the same place belong together."""

    def __init__(self) -> None:
        self._texts: dict[_Path, str] = {}
        self._exact: dict[_Path, list[Any]] = {}
        self._asks = False

    def gather(self, value: Any, path: _Path) -> None:
        if isinstance(value, str):
            self._texts[path] = self._texts.get(path, "") + value
        elif isinstance(value, list | tuple):
            for item in value:
                self.gather(item, path)
        elif isinstance(value, dict):
            index = value.get("index")
            inside = (*path, index) if isinstance(index, int) else path
            for key, item in value.items():
                self._gather_field(key, item, (*inside, str(key)))
        elif value is not None:
            self._once(value, path)

    def _gather_field(self, key: Any, item: Any, path: _Path) -> None:
        if key in _ARGUMENTS:
            self._asks = True
            self._ask(item, path)
        elif key == "name":
            self._once(item, path)
        elif key not in _ASIDE and not str(key).endswith(_ASIDE_ENDINGS):
            self.gather(item, path)

    def _ask(self, item: Any, path: _Path) -> None:
        known = self._exact.setdefault(path, [])
        if isinstance(item, str) and known and isinstance(known[-1], str):
            known[-1] += item
        elif item != "":
            known.append(item)

    def _once(self, item: Any, path: _Path) -> None:
        """What stands in a reply whole, and in some streams in each of their chunks."""
        known = self._exact.setdefault(path, [])
        if not known or known[-1] != item:
            known.append(item)

    def packed(self) -> bytes | None:
        words = {path: _VOLATILE.sub("#", text.casefold()).split() for path, text in self._texts.items()}
        if not self._asks and not any(words.values()):
            return None
        return msgpack.encode([_sorted(words), _sorted(self._exact)])


def _sorted(found: dict[_Path, list[Any]]) -> list[Any]:
    # By what the places look like: numbers and names do not compare.
    return [[repr(path), found[path]] for path in sorted(found, key=repr) if found[path]]


def _without_echo(reply: Any) -> Any:
    """OpenAI's responses repeat what was asked, and their streams, at the end, all that was said."""
    for said in reversed(reply) if isinstance(reply, list) else [reply]:
        match said:
            case {"object": "response", "output": list(output)}:
                return output
            case {"type": str(kind), "response": {"output": list(output)}} if kind.startswith("response."):
                return output
            case _:
                pass
    return reply
