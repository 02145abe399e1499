"""Copy a store's folder while other processes write to it.

The files are copied twice: once while writers continue, then, with writers locked out, only those that changed since.
Files are only appended to or replaced, so a file with the same size and time is unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from holdfast.stores import rules
from holdfast.stores.log import disk
from holdfast.stores.log.device import MARKER, Unsure

Progress = Callable[[int, int], None]
_Seen = tuple[int, int, int, int]


def copy(
    root: str, path: str, turn: Callable[[str, Callable[[], None]], None], progress: Progress | None = None
) -> int:
    """Copy a store to a new folder; return the size. `turn` calls a function while no one writes to a namespace."""
    copying = _Copying(root, path, progress)
    try:
        disk.make_folder(path, sync=True)
        spaces = [entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
        for space in spaces:
            copying.folder(space)
        for space in spaces:
            turn(os.path.join(root, space), partial(copying.folder, space))
        # Last: without it, the folder is not a store.
        copying.file(MARKER)
        copying.sync()
    except Unsure as error:
        raise rules.write_failed(path) from error
    except OSError as error:
        raise disk.translate(error, path) from error
    return copying.size


class _Copying:
    def __init__(self, root: str, target: str, progress: Progress | None) -> None:
        self._root = root
        self._target = target
        self._progress = progress
        self._seen: dict[str, _Seen] = {}

    @property
    def size(self) -> int:
        return sum(seen[1] for seen in self._seen.values())

    def folder(self, space: str) -> None:
        """Copy the changed files of a namespace, and remove copies of files that no longer exist."""
        top = os.path.join(self._root, space)
        files = [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
        found = [os.path.relpath(path, self._root) for path in sorted(files) if not _is_passing(path)]
        for done, name in enumerate(found):
            self.file(name)
            if self._progress is not None:
                self._progress(done + 1, len(found))
        for name in [each for each in self._seen.keys() - set(found) if each.startswith(f"{space}{os.sep}")]:
            os.unlink(os.path.join(self._target, name))
            del self._seen[name]

    def file(self, name: str) -> None:
        path = os.path.join(self._target, name)
        try:
            source = os.open(os.path.join(self._root, name), os.O_RDONLY | disk.NO_LINK)
        except FileNotFoundError:
            return  # removed in the meantime: the second pass does not list it
        try:
            stat = os.fstat(source)
            seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            if self._seen.get(name) == seen:
                return
            disk.make_folder(os.path.dirname(path), sync=False)
            with disk.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as target:
                for piece in disk.stretches(source, 0, stat.st_size):
                    disk.write_all(target, piece)
                os.fsync(target)
            self._seen[name] = seen
        finally:
            os.close(source)

    def sync(self) -> None:
        for folder, _, _ in os.walk(self._target):
            disk.sync_folder(folder)


def _is_passing(path: str) -> bool:
    """Whether a file is a lock, or was not completely written."""
    return os.path.basename(path).startswith("lock-") or path.endswith(".new")
