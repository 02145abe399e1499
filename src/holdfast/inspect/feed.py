"""The feed of a thread: its new checkpoints, calls and changes of status, as they are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.handle import Holdfast
from holdfast.inspect.call_records import Call, call_of, is_shown
from holdfast.inspect.references import existing
from holdfast.inspect.thread_list import ThreadStatus, thread_line
from holdfast.stores.contract import Store, ThreadRow
from holdfast.threads.metadata import checkpoint_of
from holdfast.types import Checkpoint

_PAGE: Final = 200
_OPEN: Final = ("started", "asked")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A new checkpoint, a call that was recorded or changed, or a change of status."""

    checkpoint: Checkpoint | None = None
    call: Call | None = None
    status: ThreadStatus | None = None
    reason: str | None = None


class Follower:
    """Polls a thread. The first `look` returns its current status. Raises NotFound if there is no such thread."""

    def __init__(self, hf: Holdfast, thread: str) -> None:
        self._hf = hf
        row = existing(hf, thread)
        store = hf.context.store
        self._name = row.name
        self._number = row.position.thread
        self._seq = row.position.last
        self._last = store.last_entry(self._number)
        self._open: dict[int, str] = {}
        self.status: ThreadStatus | None = None
        self.has_run = store.run(self._number) is not None

    def look(self) -> Iterator[Event]:
        """Yield what is new, in order. Raises NotFound if the thread was dropped."""
        row = existing(self._hf, self._name)
        store = self._hf.context.store
        if row.position.thread != self._number:
            # The thread was dropped, and another one of this name was created.
            self._number, self._seq, self._last, self._open = row.position.thread, 0, 0, {}
        self.has_run = store.run(self._number) is not None
        yield from self._calls(store)
        yield from self._checkpoints(store, row)
        line = thread_line(self._hf, row)
        if line.status != self.status:
            self.status = line.status
            yield Event(status=line.status, reason=line.reason)

    def _calls(self, store: Store) -> Iterator[Event]:
        for number, status in list(self._open.items()):
            for entry in store.entries(self._number, after=number - 1, limit=1):
                if entry.number == number and entry.status != status:
                    self._note(number, entry.status)
                    yield Event(call=call_of(entry))
        while page := store.entries(self._number, after=self._last, limit=_PAGE):
            self._last = page[-1].number
            for entry in page:
                self._note(entry.number, entry.status)
                if is_shown(entry.kind, entry.status, posted=True):
                    yield Event(call=call_of(entry))

    def _note(self, number: int, status: str) -> None:
        if status in _OPEN or status == "in_doubt":
            self._open[number] = status
        else:
            self._open.pop(number, None)

    def _checkpoints(self, store: Store, row: ThreadRow) -> Iterator[Event]:
        found: list[Checkpoint] = []
        before: int | None = None
        while self._seq < row.position.last:
            page = store.checkpoints(self._number, before=before, limit=_PAGE)
            new = [each for each in page if self._seq < each.seq <= row.position.last]
            found += [checkpoint_of(self._name, each) for each in new]
            if len(new) < len(page) or len(page) < _PAGE:
                break
            before = page[-1].seq
        self._seq = max(self._seq, row.position.last)
        for checkpoint in reversed(found):
            yield Event(checkpoint=checkpoint)
