"""The options --store and --namespace, opening the store, and showing its address."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.handle import open as open_handle
from holdfast.urls import default_path, path_of
from holdfast.urls import open_store as open_url


def add_store(parser: ArgumentParser) -> None:
    """Add the options that select the store."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help='a path or a URL like "sqlite:///path" (default: $HOLDFAST_STORE, else a file in your data folder)',
    )
    parser.add_argument("--namespace", metavar="NAME", default="default", help='the namespace (default: "default")')


def address(arguments: Namespace) -> str:
    """Return the address of the store: the option, the environment variable, or the default."""
    given: str | None = arguments.store
    return given if given is not None else os.environ.get("HOLDFAST_STORE") or default_path()


def open_store(arguments: Namespace, *, tools: Iterable[Callable[..., Any]] = ()) -> Holdfast:
    """Open the store that the arguments name. Raises what `holdfast.open` raises."""
    return open_handle(address(arguments), namespace=arguments.namespace, tools=tools)


def existing(arguments: Namespace) -> str:
    """Return the address of a store that exists. Raises NotFound if not: a typing error must not create a store."""
    url = address(arguments)
    kind, path = path_of(url)
    if kind == "memory":
        raise InvalidArgument('a "memory:" store ends with its process, so this command would find it empty')
    if path and not os.path.exists(path):
        raise NotFound(f"there is no store at {path}; pass --store, or set HOLDFAST_STORE")
    if kind == "sqlite" and os.path.isfile(path) and not os.path.getsize(path):
        # Opening an empty file would turn it into a new, sound store.
        raise NotFound(f"there is no store at {path}: the file is empty; it was not changed")
    return url


def open_existing(arguments: Namespace, *, upgrades: bool = False) -> Holdfast:
    """Open the store that the arguments name. Raises NotFound if it does not exist, and what `holdfast.open` raises.

    StoreError for a store of an earlier format, unless the command `upgrades` it: most commands only read.
    """
    store = open_url(existing(arguments), namespace=arguments.namespace, durability="full", upgrades=upgrades)
    try:
        return Holdfast(store, namespace=arguments.namespace)
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
