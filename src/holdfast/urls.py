"""Store URLs: open the store that a URL names, or that the caller or another package provides."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from holdfast.crypto.cipher import Cipher
from holdfast.errors import InvalidArgument, NotEncrypted, NotInstalled, StoreError, WrongKey
from holdfast.stores.contract import Store

Durability = Literal["full", "normal", "off"]

_KNOWN = 'a path, "sqlite:///path", "dir:path", "postgresql://host/database", "s3://bucket/prefix" or "memory:"'
_POSTGRES = ("postgresql://", "postgres://")
_BUCKETS = ("s3://", "gs://", "az://")
_OWN_SCHEMES = frozenset({"memory", "sqlite", "dir", "postgresql", "postgres", "s3", "gs", "az"})
ENTRY_POINTS = "holdfast.stores"


def open_store(
    url: str | os.PathLike[str] | Store | None,
    *,
    namespace: str,
    durability: Durability,
    cipher: Cipher | None = None,
    upgrades: bool = True,
) -> Store:
    """Open the store that a URL names. None means $HOLDFAST_STORE, or a file in the user's data folder.

    A store object is used as it is.

    A store of an earlier format is upgraded if `upgrades`; otherwise StoreError.

    Without a `cipher`, the keys in $HOLDFAST_KEY are used if it is set. `WrongKey` if the cipher does not open the
    namespace.
    """
    if cipher is not None and not isinstance(cipher, Cipher):
        raise InvalidArgument("cipher must be a holdfast.Cipher")
    cipher = cipher or Cipher.from_environment()
    store = open_plain(url, namespace=namespace, durability=durability, upgrades=upgrades)
    try:
        if cipher is not None:
            return _encrypted(store, cipher, namespace)
        if store.keys(limit=1):
            raise WrongKey(
                "the store is encrypted; nothing was read. Open it with cipher=holdfast.Cipher(…), or set HOLDFAST_KEY."
            )
    except BaseException:
        store.close()
        raise
    return store


def _encrypted(store: Store, cipher: Cipher, namespace: str) -> Store:
    from holdfast.crypto.keyring import Keyring  # noqa: PLC0415 - needs an optional package that is slow to import
    from holdfast.crypto.sealed_store import SealedStore  # noqa: PLC0415

    # Checked before a key is stored: a store with a key counts as encrypted and cannot be opened without a cipher.
    if not store.keys(limit=1) and store.threads(prefix="", after=None, limit=1):
        raise NotEncrypted(
            "the store holds threads that are not encrypted, so it cannot be opened with a cipher; it was not changed"
        )
    return SealedStore(store, Keyring(store, cipher, namespace))


def path_of(url: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the kind of store that a URL names, and the path of a "sqlite" or "dir" store."""
    if not isinstance(url, str | os.PathLike):
        raise InvalidArgument(f"a store is named by {_KNOWN}")
    text = os.fspath(url)
    if text == "memory:":
        return "memory", ""
    if text.startswith(_POSTGRES):
        return "postgresql", ""
    if text.startswith(_BUCKETS):
        return "bucket", ""
    if text.startswith("dir:"):
        return "dir", str(_folder(text))
    return "sqlite", str(_path(text))


def open_plain(
    url: str | os.PathLike[str] | Store | None, *, namespace: str, durability: Durability, upgrades: bool = True
) -> Store:
    """Open the store that a URL names, without a cipher."""
    if type(namespace) is not str or not namespace:
        raise InvalidArgument("a namespace must be a non-empty string")
    if durability not in get_args(Durability):
        raise InvalidArgument('durability must be "full", "normal" or "off"')
    if url is None:
        url = os.environ.get("HOLDFAST_STORE") or default_path()
    if not isinstance(url, str | os.PathLike):
        return _checked(url)
    text = os.fspath(url)
    # Each store is imported when it is opened: importing all of them is slow.
    if text == "memory:":
        from holdfast.stores.sqlite.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(namespace=namespace)
    if text.startswith(_POSTGRES):
        return _open_postgres(text, namespace, durability, upgrades=upgrades)
    if text.startswith("dir:"):
        from holdfast.stores.log import DirectoryStore  # noqa: PLC0415

        return DirectoryStore(_folder(text), namespace=namespace, durability=durability)
    if text.startswith(_BUCKETS):
        return _open_bucket(text, namespace)
    provided = _from_package(text, namespace, durability)
    if provided is not None:
        return provided
    from holdfast.stores.sqlite import SQLiteStore  # noqa: PLC0415

    return SQLiteStore(_path(text), namespace=namespace, durability=durability, upgrades=upgrades)


def _from_package(text: str, namespace: str, durability: Durability) -> Store | None:
    """The store of an installed package that provides the scheme of a URL; None if there is none."""
    scheme, separator, _ = text.partition(":")
    if not separator or len(scheme) < 2 or scheme in _OWN_SCHEMES:
        return None
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and most URLs are Holdfast's own

    for point in entry_points(group=ENTRY_POINTS, name=scheme):
        return _checked(point.load()(text, namespace=namespace, durability=durability))
    return None


def _checked(store: Any) -> Store:
    """The object, if it has the verbs of a store."""
    names = [name for name in (*Store.__annotations__, *vars(Store)) if not name.startswith("_")]
    missing = [name for name in names if not hasattr(store, name)]
    if len(missing) == len(names):
        raise InvalidArgument(f"a store is named by {_KNOWN}, or is an object with the verbs of a store")
    if missing:
        raise InvalidArgument(f"the object is not a store: it does not have {', '.join(missing)}; nothing was opened")
    found: Store = store
    return found


def _open_postgres(url: str, namespace: str, durability: Durability, *, upgrades: bool) -> Store:
    try:
        import_module("psycopg")  # alone, so that another failing import is not mistaken for this one
    except ImportError as cause:
        raise NotInstalled(
            'a PostgreSQL store needs the extra "postgres"; nothing was opened. Run pip install "holdfast[postgres]".'
        ) from cause
    from holdfast.stores.postgres import PostgresStore  # noqa: PLC0415

    return PostgresStore(url, namespace=namespace, durability=durability, upgrades=upgrades)


def _open_bucket(url: str, namespace: str) -> Store:
    try:
        import_module("obstore")
    except ImportError as cause:
        raise NotInstalled(
            'a store in a bucket needs the extra "bucket"; nothing was opened. Run pip install "holdfast[bucket]".'
        ) from cause
    from holdfast.stores.log.bucket_store import BucketStore  # noqa: PLC0415

    return BucketStore(url, namespace=namespace)


def _path(text: str) -> Path:
    if "\0" in text:
        raise InvalidArgument("a path cannot contain a NUL character")
    scheme, separator, rest = text.partition(":")
    if text in ("", ":memory:", "sqlite::memory:"):
        raise InvalidArgument(f'a store is named by {_KNOWN}; write "memory:" for a store in memory')
    if scheme == "sqlite" and separator:
        if not rest.startswith("///") or rest == "///":
            raise InvalidArgument('write "sqlite:///relative/path" or "sqlite:////absolute/path"')
        if "?" in rest:
            raise InvalidArgument(
                'a "sqlite:" URL has no options; nothing was opened. '
                'For a file with "?" in its name, write the path alone.'
            )
        return _expanded(rest[3:])
    if "://" in text or text.startswith(("postgres:", "postgresql:")):
        raise InvalidArgument(f"there is no store for {scheme}: URLs; a store is named by {_KNOWN}")
    return _expanded(text)


def _folder(text: str) -> Path:
    path = text.removeprefix("dir:")
    if not path or path.startswith("//") or "\0" in path:
        raise InvalidArgument('write "dir:relative/path" or "dir:/absolute/path"')
    return _expanded(path)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as cause:
        raise InvalidArgument(f"{text}: this user has no home folder; write the path in full") from cause


def stores_in(folder: Path) -> list[Path]:
    """The SQLite stores among the files *.db of a folder, by name. The files are not opened as databases."""
    return [path for path in sorted(folder.glob("*.db")) if _is_store(path)]


def _is_store(path: Path) -> bool:
    from holdfast.stores.sqlite.schema import APPLICATION_ID  # noqa: PLC0415 - as above

    try:
        with path.open("rb") as file:
            header = file.read(72)
    except OSError:
        return False
    return header.startswith(b"SQLite format 3\0") and header[68:] == APPLICATION_ID.to_bytes(4, "big")


def default_path() -> str:
    import platformdirs  # noqa: PLC0415 - most callers name their store

    folder = platformdirs.user_data_path("holdfast")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as cause:
        raise StoreError(f"cannot create {folder} for the default store; name a path or set HOLDFAST_STORE") from cause
    return str(folder / "holdfast.db")
