"""Shell commands to answer, settle and resume, with the store's address and quoted names."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect.printable import line
from holdfast.stores.abilities import BackingUp, Rewrapping
from holdfast.urls import path_of


class Commands:
    """Commands for one store. The user replaces VALUE, RESULT, APP and URL.

    --store and --namespace are added only if the command would otherwise open another store. An address that may
    contain a password is written as URL.
    """

    def __init__(self, hf: Holdfast, default: str | None = None) -> None:
        """`default` is the address that a command without --store uses; None means the environment or the default."""
        self._options = [*_store(hf, default), *_namespace(hf.context.namespace)]

    def answer(self, thread: str, name: str) -> str:
        """Return the command that answers a question."""
        return self._written("answer", [thread, name, "VALUE"])

    def answer_graph(self, thread: str, name: str) -> str:
        """Return the command that answers a question of a LangGraph graph and resumes it."""
        return self._written("answer", [thread, name, "VALUE"], "--graph APP")

    def settle(self, thread: str, effect: int, *, is_approval: bool = False) -> tuple[str, str, str]:
        """Return the commands that settle a call in doubt: it happened, it did not, it cannot be found out.

        `is_approval`: the call waits for permission, so the second command allows it.
        """
        words = [thread, str(effect)]
        return (
            self._written("settle", words, "--happened RESULT"),
            self._written("settle", words, "--allow" if is_approval else "--not-done"),
            self._written("settle", words, "--give-up"),
        )

    def resume(self, thread: str) -> str:
        """Return the command that resumes a run."""
        return self._written("resume", ["APP", thread])

    def _written(self, verb: str, words: list[str], *options: str) -> str:
        given, shown = [*options, *self._options], [quoted(word) for word in words]
        if any(word.startswith("-") for word in words):
            return " ".join(["holdfast", verb, *given, "--", *shown])
        return " ".join(["holdfast", verb, *shown, *given])


def quoted(text: str) -> str:
    """Quote a text as one shell word. Control characters are escaped in the $'…' form of bash and zsh."""
    if line(text) == text:
        return shlex.quote(text)
    spelled = "".join(_spelled(each) for each in text)
    return f"$'{spelled}'"


def option(name: str, value: str) -> str:
    """Return an option with its value, joined by "=" if the value looks like an option."""
    return f"{name}{'=' if value.startswith('-') else ' '}{quoted(value)}"


def _spelled(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if line(character) == character:
        return character
    try:
        coded = character.encode("utf-8", "surrogateescape")  # undecodable bytes, as they were given
    except UnicodeEncodeError:
        coded = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in coded)


def _namespace(name: str) -> list[str]:
    return [] if name == "default" else [option("--namespace", name)]


def _store(hf: Holdfast, default: str | None) -> list[str]:
    store = hf.context.store
    underlying = store.underlying if isinstance(store, Rewrapping) else store
    if isinstance(underlying, BackingUp):
        named = default or os.environ.get("HOLDFAST_STORE") or _default()
        address = f"dir:{underlying.path}" if underlying.kind == "dir" else underlying.path
        return [] if _is_at(named, underlying.kind, underlying.path) else [option("--store", address)]
    return [] if _is_served(underlying) else ["--store URL"]


def _is_at(address: str, kind: str, path: str) -> bool:
    """Whether an address names the store of this kind at this path."""
    with suppress(HoldfastError, OSError):
        named, where = path_of(address)
        return named == kind and os.path.realpath(where) == path
    return False


def _is_served(store: Any) -> bool:
    """Whether $HOLDFAST_STORE names this PostgreSQL store."""
    address = os.environ.get("HOLDFAST_STORE", "")
    if not address.startswith(("postgresql://", "postgres://")):
        return False
    with suppress(HoldfastError, AttributeError):
        from holdfast.stores.postgres.address import parse  # noqa: PLC0415 - the driver is an extra
        from holdfast.stores.postgres.schema import statements  # noqa: PLC0415

        place = parse(address)
        return bool(place.conninfo == store._place.conninfo and statements(place.schema) == store._scope.sql)
    return False


def _default() -> str:
    """Return the default path, without creating its folder."""
    import platformdirs  # noqa: PLC0415 - rarely needed

    return str(platformdirs.user_data_path("holdfast") / "holdfast.db")
