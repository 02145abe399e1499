"""A device of objects that can be created if they are absent, read, listed and deleted, as a bucket has: nothing else.

A log is a sequence of objects, `<key>/<generation>/<position>`. Appending creates the object at the next position, and
fails if another writer has created it. A log that is rewritten gets a new generation. An empty object at the end of the
old one says that the new one counts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Lock

from holdfast.stores.log.device import DROPPED, THREADS, LogChunk, Moved, NewLog, Version, part_of


class Objects:
    """The objects, which all handles share."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = Lock()

    def create(self, key: str, data: bytes) -> bool:
        """False, with nothing changed, if there is such an object."""
        with self._lock:
            return self._objects.setdefault(key, data) is data

    def get(self, key: str) -> bytes | None:
        return self._objects.get(key)

    def keys(self, prefix: str) -> list[str]:
        with self._lock:
            return sorted(key for key in self._objects if key.startswith(prefix))

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(key, None)


class ObjectDevice:
    """A namespace (a `Device`)."""

    def __init__(self, objects: Objects, namespace: str) -> None:
        self._objects = objects
        self._prefix = f"{namespace.encode().hex()}/"

    def enter(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def log(self, key: str) -> ObjectLog:
        return ObjectLog(self._objects, f"{self._prefix}log/{key}")

    def keys(self, kind: str, part: str = "") -> list[str]:
        start = self._start(kind)
        names = sorted({key.removeprefix(start).split("/")[0] for key in self._objects.keys(start)})
        return [f"{kind}/{name}" for name in names if part in ("", part_of(kind, name))]

    def _start(self, kind: str) -> str:
        return f"{self._prefix}log/{kind}/" if kind in (THREADS, DROPPED) else f"{self._prefix}{kind}/"

    def changed(self, kind: str) -> int | None:
        return None

    def create(self, key: str, pieces: Iterable[bytes]) -> None:
        if not self._objects.create(_place(f"{self._prefix}log/{key}", 1, 0), b"".join(pieces)):
            raise Moved

    def put(self, key: str, pieces: Iterable[bytes], *, sync: bool = True) -> None:
        data = b"".join(pieces)
        while not self._objects.create(f"{self._prefix}{key}", data) and self.get(key) != data:
            self.remove([key])

    def get(self, key: str) -> bytes | None:
        return self._objects.get(f"{self._prefix}{key}")

    def seen(self, key: str) -> Version | None:
        data = self.get(key)
        return None if data is None else Version(id(data), len(data), 0)

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            kind, name = key.split("/")
            objects = [
                each
                for each in self._objects.keys(self._start(kind))
                if f"{each}/".startswith(f"{self._start(kind)}{name}/")
            ]
            for each in reversed(objects):
                self._objects.delete(each)

    def clean(self, *, scrub: bool) -> list[str]:
        return []

    def forget_lock(self) -> None:
        pass

    def close(self) -> None:
        pass


class ObjectLog:
    """The log under one key (a `DeviceLog`)."""

    def __init__(self, objects: Objects, path: str) -> None:
        self.path = path
        self._objects = objects

    def stat(self) -> Version | None:
        keys = self._objects.keys(f"{self.path}/")
        while keys:
            generation, position = map(int, keys[-1].removeprefix(f"{self.path}/").split("/"))
            first = int(keys[0].removeprefix(f"{self.path}/").split("/")[0])
            own = [key for key in keys if key.startswith(f"{self.path}/{generation:08}/")]
            data = self._objects.get(own[-1])
            is_sealed = any(self._objects.get(key) == b"" for key in keys if key not in own)
            if data is not None and (generation == first or is_sealed):
                return Version(generation, position + len(data), len(own))
            keys = [key for key in keys if key not in own]  # its predecessor still counts
        return None

    def read(self, seen: Version, position: int) -> LogChunk:
        if position > seen.size or (position and not self._at(seen, position)):
            position = 0
        return LogChunk(position, self.get(seen, position, seen.size - position))

    def _at(self, seen: Version, position: int) -> bool:
        return position == seen.size or self._objects.get(_place(self.path, seen.identity, position)) is not None

    def get(self, seen: Version, position: int, length: int) -> bytes:
        found = b""
        start = f"{self.path}/{seen.identity:08}/"
        for key in self._objects.keys(start):
            at, data = int(key.removeprefix(start)), self._objects.get(key)
            if data is None:
                raise Moved
            if at < position + length and at + len(data) > position:
                found += data[max(position - at, 0) : position + length - at]
        if len(found) != length:
            raise Moved
        return found

    def append(self, seen: Version, position: int, data: bytes, *, sync: bool) -> None:
        if self.stat() != seen or not self._objects.create(_place(self.path, seen.identity, position), data):
            raise Moved

    @contextmanager
    def rewrite(self, seen: Version) -> Generator[NewLog]:
        yield NewObjects(self, self._objects, seen)

    def sync(self, seen: Version) -> None:
        pass

    def close(self) -> None:
        pass


class NewObjects:
    """The next generation of a log (a `NewLog`)."""

    def __init__(self, log: ObjectLog, objects: Objects, seen: Version) -> None:
        self._log = log
        self._objects = objects
        self._seen = seen
        self._data: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._data.append(data)

    def sync(self) -> None:
        pass

    def publish(self, position: int) -> None:
        old, path = self._seen.identity, self._log.path
        new = _place(path, old + 1, 0)
        if not self._objects.create(new, b"".join(self._data)):
            raise Moved
        if not self._objects.create(_place(path, old, position), b""):
            self._objects.delete(new)
            raise Moved
        for key in self._objects.keys(f"{path}/{old:08}/"):
            self._objects.delete(key)


def _place(path: str, generation: int, position: int) -> str:
    return f"{path}/{generation:08}/{position:016}"
