"""The store of a command: --store, --namespace, and how a store's address is shown."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.handle import open as open_handle
from holdfast.urls import _default_path, path_of


def add_store(parser: ArgumentParser) -> None:
    """The options that say which store a verb works on."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help='a path, or "sqlite:///path"; by default $HOLDFAST_STORE, else a file in your data folder',
    )
    parser.add_argument("--namespace", metavar="NAME", default="default", help='by default "default"')


def address(arguments: Namespace) -> str:
    """What the store is named by: the option, the environment, or the default."""
    given: str | None = arguments.store
    return given if given is not None else os.environ.get("HOLDFAST_STORE") or _default_path()


def open_store(arguments: Namespace, *, tools: Iterable[Callable[..., Any]] = ()) -> Holdfast:
    """The store that the arguments name, opened. Raises what `holdfast.open` does."""
    return open_handle(address(arguments), namespace=arguments.namespace, tools=tools)


def existing(arguments: Namespace) -> str:
    """The address of a store that is there. NotFound if it is not: a mistyped one must not leave an empty store."""
    url = address(arguments)
    kind, path = path_of(url)
    if kind == "memory":
        raise InvalidArgument('a store "memory:" ends with its process, so there is nothing in it')
    if path and not os.path.exists(path):
        raise NotFound(f"there is no store at {path}; see --store, or set HOLDFAST_STORE")
    if kind == "sqlite" and os.path.isfile(path) and not os.path.getsize(path):
        # To open it would make a store of it, in which nothing is wrong.
        raise NotFound(f"there is no store at {path}: the file is empty; it was left as it was")
    return url


def open_existing(arguments: Namespace) -> Holdfast:
    """The store that the arguments name, if it is there, opened. Raises what `holdfast.open` does, and NotFound."""
    return open_handle(existing(arguments), namespace=arguments.namespace)


def shown(url: str) -> str:
    """An address as it may be shown: without a password, and without options, among which there may be another."""
    scheme, separator, rest = url.partition("://")
    if not separator or rest.startswith("/"):
        return url
    # A password may hold "@", "/" or "?" that nobody escaped: what comes before the last "@" is none of the host.
    before, at, host = rest.rpartition("@")
    user = f"{before.partition(':')[0]}@" if at else ""
    return f"{scheme}://{user}{host.partition('?')[0]}"
