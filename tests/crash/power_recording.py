"""What a program does to its files, and what it says meanwhile, recorded by strace: all that a power cut can undo."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.crash.nursery import Nursery
from tests.crash.power_disk import (
    Disk,
    Event,
    FolderMade,
    Image,
    Opened,
    Removed,
    Renamed,
    Resized,
    Said,
    Synced,
    Written,
    read_image,
)
from tests.crash.tracing import WRITING, trace

# Those that no store makes are there to be noticed, should one begin to.
CALLS = (*WRITING, "openat", "writev", "fallocate", "?link", "?linkat", "?copy_file_range", "?sendfile", "?pwritev")
_EVERYTHING = ("-xx", "-s", f"{1 << 26}")
_TOKEN = re.compile(r'<((?:\\x[0-9a-f]{2})+)>(\(deleted\))?|"((?:\\x[0-9a-f]{2})*)"')
_RESULT = re.compile(r"\)\s+= (-?\d+)")
_OFFSET = re.compile(r", \d+, (\d+)\)\s+= ")
_SIZE = re.compile(r">, (\d+)\)\s+= ")
# An index that lives in shared memory: SQLite makes it anew when nobody has it open.
_PASSING = "-shm"


class Recording(msgspec.Struct):
    """What was there before, and what happened then."""

    before: Image
    events: list[Event]

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Said)]

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.msgpack.encode(self))


def read_recording(path: Path) -> Recording:
    return msgspec.msgpack.decode(path.read_bytes(), type=Recording)


def record(nursery: Nursery, program: str, task: Path, world: Path) -> Recording:
    """Run a program of the nursery that calls `wait_for_tracer` first, and record what it does in a folder.

    What was recorded, done again, gives what is in the folder then: nothing went past the recorder.
    """
    before = read_image(world)
    traced = trace(nursery, program, task, CALLS, options=_EVERYTHING)
    assert traced.ended == "itself", traced.lines
    events = list(_events((call.shown for call in traced.calls), str(world.resolve())))
    disk = Disk(before)
    for event in events:
        disk.do(event)
    after = {name: data for name, data in read_image(world).items() if not name.endswith(_PASSING)}
    assert disk.seen() == after, "the recorder has not seen everything"
    recording = Recording(before, events)
    assert recording.said == traced.lines, "the recorder has not heard everything"
    return recording


def _events(lines: Iterator[str], world: str) -> Iterator[Event]:
    for line in lines:
        result = _RESULT.search(line)
        assert result is not None, f"strace gives no result: {line[:200]}"
        if int(result[1]) < 0:
            continue
        name = line.partition("(")[0]
        if name == "writev":
            yield from _said(line)
            continue
        paths, strings, is_deleted = _tokens(line)
        inside = [os.path.relpath(path, world) for path in paths if path == world or path.startswith(f"{world}/")]
        inside = ["" if path == "." else path for path in inside]
        if inside and not is_deleted and not inside[0].endswith(_PASSING):
            event = _event(name, line, inside, strings, int(result[1]))
            if event is not None:
                yield event


def _event(name: str, line: str, paths: list[str], strings: list[bytes], result: int) -> Event | None:
    match name:
        case "openat":
            return Opened(paths[0], "O_TRUNC" in line) if "O_CREAT" in line else None
        case "write":
            return Written(paths[0], strings[0][:result])
        case "pwrite64":
            offset = _OFFSET.search(line)
            assert offset is not None, line[:200]
            return Written(paths[0], strings[0][:result], int(offset[1]))
        case "ftruncate":
            size = _SIZE.search(line)
            assert size is not None, line[:200]
            return Resized(paths[0], int(size[1]))
        case "fsync" | "fdatasync":
            return Synced(paths[0])
        case "rename" | "renameat" | "renameat2":
            assert len(paths) == 2, line
            return Renamed(*paths)
        case "unlink" | "unlinkat" | "rmdir":
            return Removed(paths[0])
        case "mkdir" | "mkdirat":
            return FolderMade(paths[0])
        case _:
            raise AssertionError(f"the disk does not know what {name} does: {line[:200]}")


def _tokens(line: str) -> tuple[list[str], list[bytes], bool]:
    """The paths that a call names, its strings, and whether it was on a file that is not there any more."""
    takes_names = line.startswith(("openat", "rename", "unlink", "mkdir", "rmdir", "link"))
    paths: list[str] = []
    strings: list[bytes] = []
    base = ""
    call = line[: line.rindex(" = ")]
    for path, deleted, string in _TOKEN.findall(call):
        if path:
            base = os.fsdecode(_bytes(path))
            if deleted:
                return [base], [], True
            if not takes_names:
                paths.append(base)
        elif takes_names:
            paths.append(os.path.normpath(os.path.join(base, os.fsdecode(_bytes(string)))))
        else:
            strings.append(_bytes(string))
    return paths, strings, False


def _said(line: str) -> Iterator[Said]:
    for _, _, string in _TOKEN.findall(line):
        for text in _bytes(string).decode(errors="replace").splitlines():
            yield Said(text)


def _bytes(shown: str) -> bytes:
    return bytes.fromhex(shown.replace("\\x", ""))
