"""The store that a command uses: finds it and opens it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.cli.terminal import say
from holdfast.errors import InvalidArgument, NotFound
from holdfast.urls import default_path, path_of, stores_in
from holdfast.urls import open_store as open_url

if TYPE_CHECKING:
    from holdfast.handle import Holdfast

SETTINGS: Final = "holdfast.toml"
_LISTED: Final = 4  # stores of a folder, in a message


class FoundStore(NamedTuple):
    """The address of a store, the namespace, and where the address is from."""

    url: str
    namespace: str | None
    source: str


def _in_reach() -> FoundStore | None:
    """Return the store that $HOLDFAST_STORE or `holdfast.toml` in the current folder names, or the only one there.

    InvalidArgument if the folder has several stores among its files *.db.
    """
    named = os.environ.get("HOLDFAST_STORE")
    if named:
        return FoundStore(named, None, "$HOLDFAST_STORE")
    settings = Path(SETTINGS)
    if settings.is_file():
        return _configured(settings)
    found = stores_in(Path())
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:_LISTED]) + (", …" if len(found) > _LISTED else "")
        raise InvalidArgument(
            f"the current folder has {len(found)} stores: {names}; nothing was opened. Choose one with --store."
        )
    return FoundStore(str(found[0]), None, "found in the current folder") if found else None


def _configured(settings: Path) -> FoundStore:
    import tomllib  # noqa: PLC0415 - most folders have no settings

    try:
        read = tomllib.loads(settings.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"cannot read {settings}: {error}") from error
    url, namespace = read.get("store"), read.get("namespace")
    if type(url) is not str or not url or (namespace is not None and type(namespace) is not str):
        raise InvalidArgument(f'{settings} must name a store, like store = "agent.db"; namespace = "…" is optional')
    return FoundStore(url, namespace, f"named in {settings}")


class Location:
    """The store that a command was given, or the one that it uses by default."""

    def __init__(self, url: str | None, namespace: str | None) -> None:
        self._given = url
        self._namespace = namespace

    @cached_property
    def _found(self) -> FoundStore:
        """The store. One that was not given, but found, is named on stderr."""
        if self._given is not None:
            return FoundStore(self._given, None, "given")
        found = _in_reach() or FoundStore(default_path(), None, "in your data folder")
        say(f"using {shown(found.url)} ({found.source})")
        return found

    @property
    def url(self) -> str:
        return self._found.url

    @property
    def namespace(self) -> str:
        given = self._found.namespace if self._namespace is None else self._namespace
        return "default" if given is None else given

    @property
    def default(self) -> str | None:
        """The address of the store in reach, which commands to copy need not name; None if there is not one."""
        with suppress(InvalidArgument):
            found = _in_reach()
            return None if found is None else found.url
        return None

    def __str__(self) -> str:
        return shown(self.url)

    def open(self, *, tools: Iterable[Callable[..., Any]] = ()) -> Holdfast:
        """Open the store; it is created if it does not exist. Raises what `holdfast.open` raises."""
        from holdfast.handle import open as open_handle  # noqa: PLC0415 - slow to import

        return open_handle(self.url, namespace=self.namespace, tools=tools)

    def existing(self) -> str:
        """Return the address of a store that exists. NotFound if not: a typing error must not create a store."""
        url = self.url
        kind, path = path_of(url)
        if kind == "memory":
            raise InvalidArgument('a "memory:" store ends with its process, so this command would find it empty')
        if path and not os.path.exists(path):
            found = ", ".join(each.name for each in stores_in(Path())[:_LISTED])
            where = (
                f"the current folder has {found}: name it with --store"
                if found
                else "check the path, or try `holdfast demo`"
            )
            if self._given is None:
                where = "pass --store, or set HOLDFAST_STORE, or try `holdfast demo`"
            raise NotFound(f"there is no store at {path}; {where}")
        if kind == "sqlite" and os.path.isdir(path):
            raise NotFound(f"there is no store at {path}: it is a folder; write a directory store as dir:{path}")
        if kind == "sqlite" and os.path.isfile(path) and not os.path.getsize(path):
            # Opening an empty file would turn it into a new, sound store.
            raise NotFound(f"there is no store at {path}: the file is empty; it was not changed")
        if kind == "dir" and os.path.isdir(path) and not os.listdir(path):
            raise NotFound(f"there is no store at {path}: the folder is empty; it was not changed")
        return url

    def open_existing(self, *, upgrades: bool = False, tools: Iterable[Callable[..., Any]] = ()) -> Holdfast:
        """Open the store. NotFound if it does not exist; otherwise raises what `holdfast.open` raises.

        StoreError for a store of an earlier format, unless the command `upgrades` it: most commands only read.
        """
        from holdfast.handle import Holdfast  # noqa: PLC0415 - slow to import

        store = open_url(self.existing(), namespace=self.namespace, durability="full", upgrades=upgrades)
        try:
            return Holdfast(store, namespace=self.namespace, tools=tools)
        except BaseException:
            store.close()
            raise


def shown(url: str) -> str:
    """Return an address without its password and without its options, which may hold another password."""
    scheme, separator, rest = url.partition("://")
    if not separator or rest.startswith("/"):
        return url
    # A password may hold unescaped "@", "/" or "?", so the host starts after the last "@".
    before, at, host = rest.rpartition("@")
    user = f"{before.partition(':')[0]}@" if at else ""
    return f"{scheme}://{user}{host.partition('?')[0]}"
