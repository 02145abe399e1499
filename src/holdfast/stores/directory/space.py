"""A namespace's folder: where its threads, values and locks lie, and what a handle knows of them.

<store>/holdfast.json                 what this folder is
<store>/<namespace>/namespace.jsonl   numbers given out, epochs, stamps of values
<store>/<namespace>/lock-gate, -turn  the lock of those who write
<store>/<namespace>/threads/<name>/log.jsonl
<store>/<namespace>/dropped/<number>/log.jsonl
<store>/<namespace>/values/ab/abcd…
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.directory import files, lines
from holdfast.stores.directory import records as r
from holdfast.stores.directory.form import Form
from holdfast.stores.directory.lines import Damage, Line
from holdfast.stores.directory.listing import Listing
from holdfast.stores.directory.log import Log
from holdfast.stores.directory.names import folder_name, name_of
from holdfast.stores.directory.replay import Replay, Thread

LOG: Final = "log.jsonl"
_OPEN_FILES: Final = 64


class Ledger:
    """What a namespace's own log says (`log.Sink`)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.last_number = 0
        self.epoch = 0
        self.stamps: dict[str, int] = {}
        self.forks: dict[int, set[int]] = {}
        self.damages: list[Damage] = []
        self.tail_damage: Damage | None = None

    def take(self, group: Sequence[tuple[Line, r.Replayed]], end: r.End, bad: Sequence[Damage]) -> None:
        self.damages += bad
        # Lines may be damaged, ends are not: each says which was the last number.
        self.last_number = max(self.last_number, end.number)
        for _, record in group:
            match record:
                case r.SpaceLine():
                    r.require_known(record.format)
                case r.EpochLine():
                    self.epoch = max(self.epoch, record.epoch)
                case r.StampLine():
                    self.stamps.update(dict.fromkeys(record.values, record.epoch))
                case r.ForkLine():
                    for origin in record.origins:
                        self.forks.setdefault(origin, set()).add(record.number)
                case r.NumberLine():
                    self.last_number = max(self.last_number, record.number)
                case _:
                    continue

    def lose(self, group: Sequence[tuple[Line, r.Replayed]], bad: Sequence[Damage]) -> None:
        self.take(group, r.End(of="", number=0), bad)

    def stop(self, damage: Damage | None) -> None:
        self.tail_damage = damage


class Followed:
    """A thread's log, and the thread it was replayed into."""

    def __init__(self, folder: str, form: Form, opened: Callable[[Log], None] | None = None) -> None:
        self.folder = folder
        path = os.path.join(folder, LOG)
        self._replay = Replay(path, form)
        self.log = Log(path, self._replay, opened)

    @property
    def thread(self) -> Thread:
        return self._replay.thread


class Space:
    """One namespace as one handle sees it. Not thread-safe: the store's lock comes first."""

    def __init__(self, root: str, namespace: str, form: Form, *, sync: bool) -> None:
        self.namespace = namespace
        self.path = os.path.join(root, folder_name(namespace))
        self.form = form
        self.sync = sync
        self.ledger = Ledger()
        self.ledger_log = Log(os.path.join(self.path, "namespace.jsonl"), self.ledger)
        self._by_path: dict[str, Followed] = {}
        self._by_number: dict[int, Followed] = {}
        self._opened: OrderedDict[str, Log] = OrderedDict()
        self._listed = Listing(os.path.join(self.path, "threads"))

    # -- finding ----------------------------------------------------------------------------------------------------

    def folder_of(self, name: str) -> str:
        return os.path.join(self.path, "threads", folder_name(name))

    def dropped_folder(self, number: int) -> str:
        return os.path.join(self.path, "dropped", f"{number}")

    def named(self, name: str) -> Followed | None:
        """The thread of that name; None if there is none. `Damaged` if its log does not say what it is."""
        found = self._follow(self.folder_of(name))
        if found is None or found.thread.is_gone:
            return None
        thread = found.thread
        if thread.name is None and thread.number:
            thread.name = name  # its first line is damaged; the folder tells as well
        if thread.name is None:
            if thread.tail_damage is not None:
                raise Damaged(f"{thread.tail_damage}; nothing before it says which thread this is")
            return None  # a creation that was cut off
        if thread.name != name:
            raise Damaged(f"{found.log.path}: the log of another thread is in this thread's folder")
        return found

    def numbered(self, number: int) -> Followed | None:
        """The thread of that number, also one that was dropped and stays for its forks."""
        found = self._by_number.get(number)
        if found is not None and found.log.catch_up() and found.thread.number == number:
            return found
        self.everything()
        return self._by_number.get(number)

    def everything(self) -> list[Followed]:
        """Every thread that can be told, caught up with."""
        there: dict[str, Followed] = {}
        for folder in self.folders():
            found = self._follow(folder)
            if found is not None and found.thread.number and _is_at_home(folder, found.thread):
                there[folder] = found
        for folder in [folder for folder in self._by_path if folder not in there]:
            self.forget(folder)
        self._by_number = {found.thread.number: found for found in there.values()}
        return list(there.values())

    def listed(self, prefix: str, after: str | None) -> Iterator[Followed]:
        """The threads by name, in order, each caught up with when it is its turn: a page costs what it shows."""
        for name, folder in self._listed.names(self._name_in):
            if name.startswith(prefix) and (after is None or name > after):
                found = self._follow(folder)
                if found is not None and found.thread.name == name and not found.thread.is_gone:
                    yield found

    def _name_in(self, folder: str) -> str | None:
        told = name_of(os.path.basename(folder))
        if told is None:
            found = self._follow(folder)  # a name that was cut
            told = None if found is None or not _is_at_home(folder, found.thread) else found.thread.name
        return told

    def forks(self, number: int) -> list[int]:
        """The threads that use cells of this one. `namespace.jsonl` knows who may, so that not all are looked at."""
        if not self.ledger_log.catch_up() or self.ledger.damages or self.ledger.tail_damage is not None:
            candidates: Iterable[Followed | None] = self.everything()
        else:
            candidates = [self.numbered(fork) for fork in sorted(self.ledger.forks.get(number, ()))]
        return sorted(
            found.thread.number
            for found in candidates
            if found is not None and number in found.thread.origins and not found.thread.is_gone
        )

    def folders(self) -> Iterator[str]:
        for kind in ("threads", "dropped"):
            try:
                with os.scandir(os.path.join(self.path, kind)) as entries:
                    names = sorted(entry.name for entry in entries)
            except FileNotFoundError:
                continue
            yield from (os.path.join(self.path, kind, name) for name in names)

    def forget(self, folder: str) -> None:
        """What lay in a folder is not there any more."""
        found = self._by_path.pop(folder, None)
        if found is not None:
            found.log.close()
            if self._by_number.get(found.thread.number) is found:
                del self._by_number[found.thread.number]

    def _follow(self, folder: str) -> Followed | None:
        found = self._by_path.get(folder)
        if found is None:
            found = Followed(folder, self.form, self._keep_few_open)
            self._by_path[folder] = found
        if not found.log.catch_up():
            self.forget(folder)
            return None
        thread = found.thread
        if thread.number and _is_at_home(folder, thread):
            self._by_number[thread.number] = found
        return found

    def _keep_few_open(self, log: Log) -> None:
        """Close what was opened longest ago, so that thousands of threads are not open at once."""
        self._opened[log.path] = log
        self._opened.move_to_end(log.path)
        while len(self._opened) > _OPEN_FILES:
            _, oldest = self._opened.popitem(last=False)
            oldest.close()

    def close(self) -> None:
        for found in self._by_path.values():
            found.log.is_pinned = False
            found.log.close()
        self.ledger_log.close()
        self._by_path.clear()
        self._by_number.clear()
        self._opened.clear()

    # -- writing: only under the gate ---------------------------------------------------------------------------------

    def keep_ledger(self) -> None:
        """Catch up with the namespace's own log, which is made if there is none."""
        if self.ledger_log.catch_up():
            return
        files.make_folder(self.path, sync=self.sync)
        # Without its log, the numbers in use are the last witness of those given out.
        known = self.everything()
        last = max((found.thread.number for found in known), default=0)
        made = [sealed(r.SpaceLine(format=r.FORMAT, **r.shown_name(self.namespace)))]
        made += [
            sealed(r.ForkLine(number=found.thread.number, origins=tuple(sorted(found.thread.origins))))
            for found in known
            if found.thread.origins
        ]
        files.replace_file(self.ledger_log.path, [group(made, last)], sync=self.sync)
        self.ledger_log.catch_up()

    def note(self, record: msgspec.Struct, number: int | None = None, *, sync: bool) -> None:
        """Add to the namespace's own log."""
        last = self.ledger.last_number if number is None else number
        self.ledger_log.descriptor()
        self.ledger_log.append(group([sealed(record)], last), sync=sync and self.sync)
        self.ledger_log.catch_up()

    def create(self, name: str, data: bytes) -> None:
        """A new thread with its first group. What a crash or a drop left in its folder gives way."""
        folder = self.folder_of(name)
        files.make_folder(folder, sync=self.sync)
        path = os.path.join(folder, LOG)
        if os.path.exists(path):
            os.rename(path, os.path.join(folder, f"torn-0-{time.time_ns()}"))
        self.forget(folder)
        files.replace_file(path, [data], sync=self.sync)
        self._follow(folder)


Sealed = tuple[str, bytes]
"""A line, and the letter of its kind."""


def sealed(record: msgspec.Struct) -> Sealed:
    return r.LETTERS[type(record)], lines.seal(record)


def group(made: Sequence[Sealed], number: int, at: r.Stand | None = None) -> bytes:
    """Lines as one group, ready to be appended."""
    end = r.End(of=lines.composition(kind for kind, _ in made), number=number, at=at)
    return b"".join([*(line for _, line in made), lines.seal(end)])


def _is_at_home(folder: str, thread: Thread) -> bool:
    """Whether a log lies where its thread would put it: copies of a folder under another name are not followed."""
    if thread.is_gone:
        return True
    if thread.name is None:
        thread.name = name_of(os.path.basename(folder))
    return thread.name is not None and folder_name(thread.name) == os.path.basename(folder)
