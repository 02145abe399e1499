"""A namespace's folder: finds and follows the logs of its threads.

<store>/holdfast.json                 identifies the folder as a store
<store>/<namespace>/namespace.jsonl   numbers assigned, epochs, stamps of blobs
<store>/<namespace>/lock-gate, -turn  the lock for writers
<store>/<namespace>/threads/<name>/log.jsonl
<store>/<namespace>/dropped/<number>/log.jsonl
<store>/<namespace>/values/ab/abcd…
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.errors import Damaged, HoldfastError
from holdfast.stores.directory import files, lines
from holdfast.stores.directory import records as r
from holdfast.stores.directory.form import Form
from holdfast.stores.directory.ledger import Ledger, may_be_a_fork
from holdfast.stores.directory.listing import Listing
from holdfast.stores.directory.log import Log
from holdfast.stores.directory.names import LOG, folder_name, name_of
from holdfast.stores.directory.replay import Replay, Thread
from holdfast.stores.directory.unread import Unread, first_number, lost, unread
from holdfast.stores.directory.values import Values

_OPEN_FILES: Final = 64
_LARGE: Final = 256 << 10  # a shorter log of the namespace is not worth rewriting
_WIDE_BERTH: Final = 1_000_000  # numbers left unused in case an unreadable thread has one of them


class Followed:
    """A thread's log, and the thread that was replayed from it."""

    def __init__(self, folder: str, form: Form, opened: Callable[[Log], None] | None = None) -> None:
        self.folder = folder
        path = os.path.join(folder, LOG)
        self._replay = Replay(form)
        self.log = Log(path, self._replay, opened)

    @property
    def thread(self) -> Thread:
        return self._replay.thread


class Space:
    """One namespace, as one handle has read it. Not thread-safe: the store's lock comes first."""

    def __init__(self, root: str, namespace: str, form: Form, *, sync: bool) -> None:
        self.namespace = namespace
        self.path = os.path.join(root, folder_name(namespace))
        self.form = form
        self.sync = sync
        self.is_lazy = False  # appends are not synced; everything else is
        self.ledger = Ledger()
        self.ledger_log = Log(os.path.join(self.path, "namespace.jsonl"), self.ledger)
        self._by_path: dict[str, Followed] = {}
        self._by_number: dict[int, Followed] = {}
        self._twins: dict[int, set[str]] = {}
        self.unread: list[Unread] = []  # set by `everything`
        self.untold: dict[str, HoldfastError] = {}  # by folder, set by listings
        self._highest = -1  # highest number in the first lines of all logs; -1 before it is determined
        self._entered: set[str] = set()
        self._opened: OrderedDict[str, Log] = OrderedDict()
        self._listed = Listing(os.path.join(self.path, "threads"))

    # -- finding ----------------------------------------------------------------------------------------------------

    def folder_of(self, name: str) -> str:
        return os.path.join(self.path, "threads", folder_name(name))

    def dropped_folder(self, number: int) -> str:
        return os.path.join(self.path, "dropped", f"{number}")

    def named(self, name: str) -> Followed | None:
        """The thread with this name; None if there is none. `Damaged` if its log does not identify the thread."""
        found = self._follow(self.folder_of(name))
        if found is None or found.thread.is_gone:
            return None
        thread = found.thread
        if not thread.number:
            raise lost(found.log.path, found.thread.tail_damage)
        if thread.name is None:
            thread.name = name  # its first line is damaged, but the folder has the name, too
        if thread.name != name:
            raise Damaged(f"{found.log.path}: this folder has the log of another thread")
        self._require_alone(found)
        return found

    def left_in(self, name: str) -> Followed | None:
        """The dropped thread that is still in the folder for this name, which is needed now."""
        return self._follow(self.folder_of(name))

    def numbered(self, number: int) -> Followed | None:
        """The thread with this number, including one that was dropped and stays for its forks.

        `Damaged` if its log cannot be read, or if two threads have the number.
        """
        found = self._at_hand(number)
        if found is None:
            self.everything()
            for other in self.unread:
                if other.number == number:
                    raise other.error
            found = self._by_number.get(number)
        elif self._twins:
            self._require_alone(found)
        return found

    def _at_hand(self, number: int) -> Followed | None:
        """The thread with this number, if this handle knows its folder."""
        found = self._by_number.get(number)
        is_there = found is not None and self._catch_up(found) and found.thread.number == number
        return found if is_there else None

    def everything(self) -> list[Followed]:
        """Every readable thread, up to date. The others are in `unread`."""
        there: dict[str, Followed] = {}
        self.unread = []
        for folder in self.folders():
            try:
                found = self._follow(folder)
            except (HoldfastError, OSError) as error:
                self.unread.append(unread(folder, error))
                continue
            if found is None:
                continue
            if not found.thread.number:
                self.unread.append(unread(folder, lost(found.log.path, found.thread.tail_damage)))
            elif _is_at_home(folder, found.thread):
                there[folder] = found
        for folder in [folder for folder in self._by_path if folder not in there]:
            self.forget(folder)
        self._by_number = {found.thread.number: found for found in there.values()}
        for number in list(self._twins):
            try:
                self._require_alone(self._by_number.get(number))
            except Damaged as error:
                twins = self._twins[number]
                self.unread += [Unread(folder, number, error) for folder in sorted(twins)]
                there = {folder: found for folder, found in there.items() if folder not in twins}
        return list(there.values())

    def all_told(self) -> list[Followed]:
        """Every thread, for callers that remove unused data: `Damaged` if one cannot be read."""
        found = self.everything()
        if self.unread:
            raise self.unread[0].refusal()
        return found

    def listed(self, prefix: str, after: str | None) -> Iterator[Followed]:
        """The threads by name, in order. Each is read when it is reached, so a page costs only what it shows."""
        for name, folder in self._listed.names(self._name_in):
            if name.startswith(prefix) and (after is None or name > after):
                found = self._told(folder)
                if found is not None and found.thread.name == name and not found.thread.is_gone:
                    yield found

    def _told(self, folder: str) -> Followed | None:
        """The thread in a folder. An unreadable one is recorded in `untold`, for the end of a listing."""
        self.untold.pop(folder, None)
        try:
            found = self._follow(folder)
            if found is not None and not found.thread.number:
                raise lost(found.log.path, found.thread.tail_damage)
        except (HoldfastError, OSError) as error:
            self.untold[folder] = unread(folder, error).error
            return None
        return found

    def require_told(self, prefix: str) -> None:
        """Raise the error of a thread that a listing skipped, if it is still unreadable."""
        for folder in sorted(self.untold):
            name = name_of(os.path.basename(folder))
            if name is None or name.startswith(prefix):
                found = self._told(folder)
                error = self.untold.get(folder)
                if error is not None:
                    raise error if isinstance(error, Damaged) else Damaged(f"{folder}: {error}")
                if found is not None and not found.thread.is_gone:
                    _ = found.thread.at

    def _name_in(self, folder: str) -> str | None:
        told = name_of(os.path.basename(folder))
        if told is None:
            found = self._told(folder)  # the name was shortened
            told = None if found is None or not _is_at_home(folder, found.thread) else found.thread.name
        return told

    def forks(self, number: int) -> list[int]:
        """The threads that use, or may use, cells of this one. `Damaged` if one that may is unreadable.

        `namespace.jsonl` names the candidates, so that not all threads have to be read.
        """
        forks = set(self.ledger.forks.get(number, ())) if self.ledger_log.catch_up() else set[int]()
        is_sure = self._knows_all_forks()
        if not is_sure or any(self._at_hand(fork) is None for fork in forks):
            for found in self.everything():
                if number in found.thread.origins or (not is_sure and may_be_a_fork(found.thread)):
                    forks.add(found.thread.number)
            for other in self.unread:
                if other.number is None or other.number in forks or not is_sure:
                    raise other.refusal()
        found_forks = [self._by_number.get(fork) for fork in sorted(forks - {number})]
        return [found.thread.number for found in found_forks if found is not None and not found.thread.is_gone]

    def _knows_all_forks(self) -> bool:
        """Whether every thread that uses cells of another is in the namespace's log."""
        ledger = self.ledger
        is_whole = bool(self.ledger_log.end) and not ledger.lost and not ledger.is_partial
        return is_whole and self._highest_number() <= ledger.last_number

    def _highest_number(self) -> int:
        """The highest number in any log. In a copy of a store, the namespace's log may be older than the others."""
        if self._highest < 0:
            numbers = (first_number(folder) for folder in self.folders())
            self._highest = max((number for number in numbers if number is not None), default=0)
        return self._highest

    def folders(self) -> Iterator[str]:
        for kind in ("threads", "dropped"):
            try:
                with os.scandir(os.path.join(self.path, kind)) as entries:
                    names = sorted(entry.name for entry in entries)
            except FileNotFoundError:
                continue
            yield from (os.path.join(self.path, kind, name) for name in names)

    def forget(self, folder: str) -> None:
        """Forget the log in a folder, which no longer exists there."""
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
        if not self._catch_up(found):
            return None
        thread = found.thread
        if thread.number and _is_at_home(folder, thread):
            before = self._by_number.get(thread.number)
            if before is not None and before is not found:
                self._twins.setdefault(thread.number, set()).update((before.folder, folder))
            self._by_number[thread.number] = found
        return found

    def _catch_up(self, found: Followed) -> bool:
        """Read what is new. Forget the log if it no longer exists or cannot be read."""
        is_there = False
        try:
            is_there = found.log.catch_up()
        finally:
            if not is_there:
                self.forget(found.folder)
        return is_there

    def _require_alone(self, found: Followed | None) -> None:
        """`Damaged` if another log has the same number. A thread that was moved in the meantime does not count."""
        number = 0 if found is None else found.thread.number
        if number not in self._twins:
            return
        there: list[Followed | None] = []
        for folder in sorted(self._twins.pop(number)):
            with suppress(HoldfastError, OSError):  # an unreadable log has no number
                there.append(self._follow(folder))
        same = [twin for twin in there if twin is not None and twin.thread.number == number]
        if len(same) > 1:
            self._twins[number] = {twin.folder for twin in same}
            folders = " and ".join(twin.folder for twin in same)
            raise Damaged(
                f"{folders}: two threads have the number {number}, for example because two copies of a store were "
                "merged. Move one of the folders out of the store."
            )

    def _keep_few_open(self, log: Log) -> None:
        """Close the files opened longest ago, so that a handle does not keep thousands of files open."""
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
        """Read the namespace's log. Create it if it is missing or damaged."""
        log = self.ledger_log
        is_there = log.catch_up() and log.end > 0
        if not is_there or self.ledger.lost:
            self._make_ledger(is_whole=False)
        elif log.end > _LARGE and log.end > 2 * self.ledger.size and not log.has_tail:
            self._replace_ledger(self.ledger)

    def free_number(self) -> int:
        """A number that no thread has or had."""
        if self._highest_number() > self.ledger.last_number:
            self._make_ledger(is_whole=True)
        return self.ledger.last_number + 1

    def _make_ledger(self, *, is_whole: bool) -> None:
        """Write the namespace's log from its readable part and from the threads."""
        files.make_folder(self.path, sync=self.sync)
        known = [found.thread for found in self.everything()]
        values = list(Values(self.path).all())
        is_lost = not is_whole and bool(self.ledger.lost or known or values or self.unread)
        if is_lost and files.is_there(self.ledger_log.path):
            self._keep_damaged_ledger()
        numbers = [other.number for other in self.unread if other.number is not None]
        self.ledger.last_number = max([self.ledger.last_number, self._highest, *numbers])
        if is_lost and len(numbers) < len(self.unread):
            self.ledger.last_number += _WIDE_BERTH
        self._replace_ledger(self.ledger.made_again(known, values, is_lost=is_lost, is_partial=bool(self.unread)))

    def _keep_damaged_ledger(self) -> None:
        path = self.ledger_log.path
        number = 1
        while files.is_there(aside := os.path.join(self.path, f"damaged-{number}")):
            number += 1
        with open(path, "rb") as file:
            files.replace_file(aside, iter(lambda: file.read(_LARGE), b""), sync=self.sync)

    def tidy_ledger(self, *, is_forced: bool = False) -> None:
        """Remove entries for things that no longer exist from the namespace's log, if that makes it much shorter."""
        known = [found.thread for found in self.everything()]
        if self.unread:
            return
        tidied = self.ledger.tidied(known, set(Values(self.path).all()))
        if is_forced or self.ledger.is_partial != tidied.is_partial or self.ledger_log.end > 2 * tidied.size:
            self._replace_ledger(tidied)

    def _replace_ledger(self, ledger: Ledger) -> None:
        made = [sealed(record) for record in ledger.records(self.namespace)]
        files.replace_file(self.ledger_log.path, [group(made, ledger.last_number)], sync=self.sync)
        self.ledger_log.catch_up()

    def note(self, record: msgspec.Struct, number: int | None = None, *, sync: bool) -> None:
        """Append a record to the namespace's log."""
        last = self.ledger.last_number if number is None else max(number, self.ledger.last_number)
        self.ledger_log.descriptor()
        self.ledger_log.append(group([sealed(record)], last), sync=sync and self.sync)
        self.ledger_log.catch_up()

    def create(self, name: str, data: bytes) -> None:
        """Create a new thread with its first group, in its own folder."""
        folder = self.folder_of(name)
        for above in (self.path, os.path.dirname(folder)):
            files.enter(above, self._entered, sync=self.sync)
        files.enter(folder, set(), sync=self.sync)
        self.forget(folder)
        files.replace_file(os.path.join(folder, LOG), [data], sync=self.sync)
        # The thread exists even if it cannot be read back now; the next read does that.
        with suppress(OSError):
            self._follow(folder)


Sealed = tuple[str, bytes]
"""A line, and the letter for its kind."""


def sealed(record: msgspec.Struct) -> Sealed:
    return r.LETTERS[type(record)], lines.seal(record)


def group(made: Sequence[Sealed], number: int, at: r.Stand | None = None, nth: int = 0, entry: int = 0) -> bytes:
    """Lines as one group, ready to append: the `nth` of its log; `entry` is the newest journal entry then."""
    return b"".join([*(line for _, line in made), ending((kind for kind, _ in made), number, at, nth, entry)])


def ending(kinds: Iterable[str], number: int, at: r.Stand | None = None, nth: int = 0, entry: int = 0) -> bytes:
    """The last line of a group with lines of these kinds."""
    return lines.seal(r.End(of=lines.composition(kinds), number=number, group=nth, entry=entry, at=at))


def _is_at_home(folder: str, thread: Thread) -> bool:
    """Whether a log is in the folder for its thread's name. Copies under other names are not followed."""
    if thread.is_gone:
        return True
    if thread.name is None:
        thread.name = name_of(os.path.basename(folder))
    return thread.name is not None and folder_name(thread.name) == os.path.basename(folder)
