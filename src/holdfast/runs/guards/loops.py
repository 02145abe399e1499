"""LoopGuard: halt a run that repeats itself."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import InvalidArgument
from holdfast.stores.contract_runs import Entry

_REPLY: Final = ""  # no tool has this name

_Action: TypeAlias = tuple[str, bytes]  # a tool and the digest of its arguments, or a model's reply


class LoopGuard(msgspec.Struct, frozen=True, kw_only=True):
    """Halts a run that does the same thing `repeats` times within its last `window` calls.

    That is a call of the same tool with the same arguments, or the same reply of a model. Replies are compared by
    their text and the tool calls they ask for, without case, white space, ids and timestamps.
    """

    window: int = 10
    repeats: int = 3

    def __post_init__(self) -> None:
        for name in ("window", "repeats"):
            if type(getattr(self, name)) is not int:
                raise InvalidArgument(f"LoopGuard: {name} must be a whole number")
        if not 2 <= self.repeats <= self.window:
            raise InvalidArgument("LoopGuard: repeats must be 2 or more, and window not less than that")


class Recent:
    """The last actions of a run on its current branch."""

    def __init__(self, guard: LoopGuard, branch: int) -> None:
        self._guard = guard
        self._branch = branch
        self._actions: dict[tuple[int, str], _Action] = {}  # by step and key: a retried call is one

    def note(self, entry: Entry) -> None:
        """Add a tool call."""
        if entry.kind != "model" and not entry.matches:
            self._add(entry, (entry.name, entry.arguments))

    def replied(self, entry: Entry, reply: Any) -> None:
        """Add a model's reply."""
        answer = reply_text(reply)
        if answer is not None:
            self._add(entry, (_REPLY, answer))

    def _add(self, entry: Entry, action: _Action) -> None:
        # To repeat the work of an abandoned branch is not a loop.
        if entry.branch != self._branch:
            return
        place = (entry.step, entry.key)
        if self._actions.get(place) != action:
            self._actions.pop(place, None)
            self._actions[place] = action
        while len(self._actions) > self._guard.window:
            del self._actions[next(iter(self._actions))]

    def repeated(self) -> str | None:
        """The reason why no call may be made; None if there is no loop."""
        actions = list(self._actions.values())
        for action in dict.fromkeys(actions):
            times = actions.count(action)
            if times >= self._guard.repeats:
                name, _ = action
                what = (
                    "the model gave the same reply" if name == _REPLY else f"{name} was called with the same arguments"
                )
                return f"a loop: {what} {times} times within the last {self._guard.window} calls"
        return None


# -- comparing replies ----------------------------------------------------------------------------------------------

# Fields that are not compared.
_ASIDE = frozenset(
    ("created", "encrypted_content", "finish_reason", "id", "index", "logprobs", "model", "obfuscation", "object")
) | frozenset(("role", "service_tier", "signature", "status", "stop_reason", "system_fingerprint", "type", "usage"))
_ASIDE_ENDINGS = ("_at", "_duration", "_eval_count", "_fingerprint", "_id")
# Arguments of tool calls. They are compared exactly: the next page is another call.
_ARGUMENTS = frozenset(("args", "arguments", "input", "parameters", "partial_json"))

# Matched in lower-case text. Numbers of orders, bookings and the like are shorter or look different.
_VOLATILE = re.compile(
    r"""(?<![a-z0-9])(?:
        [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}    # a UUID
      | \d{4}-\d\d-\d\d[t\ ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?  # a timestamp
      | 1\d{9}(?:\d{3}){0,3}(?:\.\d+)?                                  # a Unix time in s, ms, µs or ns
      | (?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{12,}                           # a digest
      | (?:call|toolu)_(?=[a-z]*\d)[a-z0-9]{6,}                         # an id of a provider
      | [a-z]+[_-](?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{16,}
    )(?![a-z0-9])""",
    re.VERBOSE,
)

_Path: TypeAlias = tuple[str | int, ...]


def reply_text(reply: Any) -> bytes | None:
    """The comparable part of a reply; None if it has no text and no tool calls.

    The chunks of a stream are joined, so it does not matter where it was cut.
    """
    answer = _ReplyParts()
    answer.gather(_without_echo(reply), ())
    return answer.packed()


class _ReplyParts:
    """The parts of a reply by their path. Chunks of a stream with the same path belong together."""

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
        """Add a value that a reply holds once, and some streams repeat in each chunk."""
        known = self._exact.setdefault(path, [])
        if not known or known[-1] != item:
            known.append(item)

    def packed(self) -> bytes | None:
        words = {path: _VOLATILE.sub("#", text.casefold()).split() for path, text in self._texts.items()}
        if not self._asks and not any(words.values()):
            return None
        return msgpack.encode([_sorted(words), _sorted(self._exact)])


def _sorted(found: dict[_Path, list[Any]]) -> list[Any]:
    # By repr: numbers and names in a path do not compare.
    return [[repr(path), found[path]] for path in sorted(found, key=repr) if found[path]]


def _without_echo(reply: Any) -> Any:
    """The output of an OpenAI response. Such responses repeat the request, and their streams the whole reply."""
    for part in reversed(reply) if isinstance(reply, list) else [reply]:
        match part:
            case {"object": "response", "output": list(output)}:
                return output
            case {"type": str(kind), "response": {"output": list(output)}} if kind.startswith("response."):
                return output
            case _:
                pass
    return reply
