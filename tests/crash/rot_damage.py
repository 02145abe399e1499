"""Ways to damage a store that is at rest, each told by a short text that makes the same damage again."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.crash import rot_scene
from tests.crash.lab import spread
from tests.crash.rot_scene import Before, Pardon

SEED = 20_26
STRIDE = int(os.environ.get("HOLDFAST_LAB_STRIDE", "4"))
"""In the full lab, of so many bytes one is flipped: 1 takes hours."""


class Rotten(Protocol):
    """A kind of store with the scene in it, which is damaged in a copy each time."""

    before: Before

    def points(self, most: int | None) -> Iterator[str]:
        """The damages there are, or so many of each kind, spread evenly."""
        ...

    def damaged(self, point: str) -> AbstractContextManager[str]:
        """A context in which a damaged copy has an address."""
        ...

    def reach(self, point: str) -> set[tuple[str, int]] | None:
        """The checkpoints that the damage can hurt; None if that may be any."""
        ...

    def pardoned(self, point: str) -> set[Pardon]:
        """What the judge has to pardon."""
        ...

    def is_told(self, point: str) -> bool:
        """Whether a check must find the damage, though nothing else may."""
        ...


def flipped(value: bytes, point: str, at: int | None = None) -> bytes:
    """The value with one bit changed, always the same for a point."""
    chance = random.Random(f"{SEED} {point}")
    changed = bytearray(value)
    changed[chance.randrange(len(changed)) if at is None else at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def some(many: Sequence[int], most: int | None) -> list[int]:
    return list(many) if most is None else spread(many, most)


class RottenDirectory:
    """Every file: bits, ends, the order of lines, older versions of lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = folder / "store"
        url = f"dir:{self._store}"
        rot_scene.begin(url)
        shutil.copytree(self._store, folder / "half")
        rot_scene.finish(url)
        self.before = rot_scene.observed(url)
        self.files = sorted(
            str(file.relative_to(self._store))
            for file in self._store.rglob("*")
            if file.is_file() and file.stat().st_size
        )

    def points(self, most: int | None) -> Iterator[str]:
        places = [(file, at) for file in self.files for at in range(self._size(file))]
        # Of a value's file every byte is like any other.
        places = [(file, at) for file, at in places if "/blobs/" not in file or at % 64 == 0]
        for index in some(range(0, len(places), STRIDE if most is None else 1), most):
            yield "flip,{},{}".format(*places[index])
        for file in self.files:
            for size in some(range(0, self._size(file), 4 * STRIDE), None if most is None else max(most // 60, 1)):
                yield f"cut,{file},{size}"
            lines = self._lines(file)
            for at in some(range(len(lines) - 1), None if most is None else 2) if file.endswith(".jsonl") else ():
                yield f"swap,{file},{at}"
                yield f"drop,{file},{at}"
                yield f"repeat,{file},{at}"
            if "/threads/" not in file:
                yield f"remove,{file},0"
            if file.endswith("log.jsonl"):
                yield from (f"older,{file},{at}" for at in self._older(lines))

    def _older(self, lines: list[bytes]) -> Iterator[int]:
        """Lines that take the place of an earlier one."""
        seen: set[Any] = set()
        for at, line in enumerate(lines):
            record = json.loads(line)
            if record["t"] in ("effect", "run"):
                which = (record["t"], record.get("number"))
                if which in seen:
                    yield at
                seen.add(which)

    def _before_it(self, lines: list[bytes], at: int) -> bytes:
        record = json.loads(lines[at])
        which = (record["t"], record.get("number"))
        for line in reversed(lines[:at]):
            found = json.loads(line)
            if (found["t"], found.get("number")) == which:
                return line
        raise LookupError(which)

    @contextmanager
    def damaged(self, point: str) -> Generator[str]:
        verb, file, number = point.split(",")
        copy = self._folder / "copy"
        shutil.copytree(self._store, copy)
        try:
            path, at = copy / file, int(number)
            content = path.read_bytes()
            lines = content.splitlines(keepends=True)
            match verb:
                case "flip":
                    path.write_bytes(flipped(content, point, at))
                case "cut":
                    path.write_bytes(content[:at])
                case "swap":
                    path.write_bytes(b"".join([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]))
                case "drop":
                    path.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))
                case "older":
                    lines[at] = self._before_it(lines, at)
                    path.write_bytes(b"".join(lines))
                case "repeat":
                    path.write_bytes(b"".join([*lines[: at + 1], lines[at], *lines[at + 2 :]]))
                case _:
                    path.unlink()
            yield f"dir:{copy}"
        finally:
            shutil.rmtree(copy)

    def reach(self, point: str) -> set[tuple[str, int]] | None:
        _, file, _ = point.split(",")
        name = Path(file).parent.name
        if "/threads/" not in file or name == "main":  # a fork and its prompt hang on `main`
            return None
        return {(name, seq) for seq in self.before.threads[name].ids}

    def pardoned(self, point: str) -> set[Pardon]:
        verb, file, at = point.split(",")
        # A group that lost its end is a write that was cut off.
        if "/threads/" in file and (verb == "cut" or (verb == "repeat" and int(at) + 2 == len(self._lines(file)))):
            return {"older"}
        return {"journal", "listing"} if verb == "older" else set()

    def is_told(self, point: str) -> bool:
        return point.startswith("flip,") and not point.startswith("flip,holdfast.json")

    def _size(self, file: str) -> int:
        return (self._store / file).stat().st_size

    def _lines(self, file: str) -> list[bytes]:
        return (self._store / file).read_bytes().splitlines(keepends=True)
