"""Copy what can be read of a damaged store to a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from holdfast.delta.load import read_skeleton
from holdfast.errors import AlreadyExists, Damaged
from holdfast.stores.contract import Problem, Span, Store, ThreadRow
from holdfast.stores.running import EffectRow, RunRow
from holdfast.threads.replica import Copyist, Gathered, Plan, Values, head_of
from holdfast.threads.soundness import Examined, Examiner, listed
from holdfast.threads.verify import Looked, Progress, Repaired

_PAGE: Final = 200
_UNREADABLE_MAX: Final = 10_000  # journal entries or checkpoints in a row, after which nothing is taken to follow
_LOST: Final = "it was damaged, and a repair left it out"


def repair(source: Store, target: Store, progress: Progress | None = None, *, values: Values | None = None) -> Repaired:
    """Copy all that is sound into an empty store. `AlreadyExists` if it is not empty; then nothing was written.

    `values` gives the shared values of the source as they are stored, where that is encrypted.
    """
    require_empty(target)
    return _Repair(source, target, progress, values or source.value).run()


def require_empty(target: Store) -> None:
    if target.thread_numbers():
        raise AlreadyExists("the target of a repair holds threads already; name a new store. Nothing was written")


class _Repair:
    def __init__(self, source: Store, target: Store, progress: Progress | None, values: Values) -> None:
        self._source = source
        self._target = target
        self._values = values
        self._progress = progress
        self._gathered = Gathered()
        self._named: list[Span] = []
        self._lost: list[Problem] = []
        self._bytes = 0

    def run(self) -> Repaired:
        threads = listed(self._source)
        self._lost += [Problem(None, (), what) for what in threads.problems]
        kept: dict[int, frozenset[int]] = {}
        with Examiner(self._source, read=self._read, names=self._named.append) as examiner:
            for done, number in enumerate(threads.numbers):
                if number in threads.names:
                    kept[number] = frozenset(self._examined(examiner, number, threads.names[number]))
                self._tell(done, 2 * len(threads.numbers))
        copyist = Copyist(self._source, self._target, self._gathered, self._values)
        used = self._gathered.threads()
        copied = checkpoints = entries = redigested = 0
        forgotten: list[int] = []
        # Where not all numbers could be told, those of dropped threads are not among them.
        numbers = sorted({*threads.numbers, *used})
        for done, number in enumerate(numbers):
            self._tell(len(numbers) + done, 2 * len(numbers))
            plan = self._plan(number, threads.names.get(number), kept.get(number, frozenset()))
            if plan is None and number in used:
                plan = self._unnamed(number)
                made = copyist.copy(plan)
                forgotten.append(made.number)
            elif plan is not None:
                made = copyist.copy(plan)
                copied += 1
                checkpoints += len(plan.kept)
                entries += len(plan.entries)
                redigested += made.redigested
        for number in reversed(forgotten):
            self._target.drop(number)
        self._tell(1, 1)
        return Repaired(
            threads=copied, checkpoints=checkpoints, entries=entries, redigested=redigested, lost=tuple(self._lost)
        )

    # -- what can be kept --------------------------------------------------------------------------------------------

    def _examined(self, examiner: Examiner, number: int, name: str) -> Iterator[int]:
        """The checkpoints of a thread that are sound. Those of which only the parent is missing are."""
        try:
            for examined in examiner.thread(number):
                row = examined.row
                if row is None or not _is_sound(examined):
                    self._lost.append(Problem(name, (examined.seq,), "; ".join(examined.problems)))
                elif not row.deleted:
                    self._gathered.wrote(number, row.seq, read_skeleton(row).wrote)
                    yield row.seq
                # Also of what is lost: what a cell names is told once.
                for span in self._named:
                    self._gathered.names(span)
                self._named.clear()
        except Damaged as damage:
            self._lost.append(Problem(name, (), str(damage)))

    def _plan(self, number: int, name: str | None, kept: frozenset[int]) -> Plan | None:
        """What to copy of a thread; None if there is nothing, or it has no name."""
        if name is None:
            return None
        thread: ThreadRow | None = None
        try:
            thread = self._source.thread(name)
        except Damaged as damage:
            thread = self._listed(name)
            self._lost.append(Problem(name, (), str(damage)))
        if thread is None or not kept:
            self._lost.append(Problem(name, (), "nothing of it can be read"))
            return None
        head = head_of(self._source, thread, kept)
        is_whole = head == thread.position.head
        if not is_whole:
            self._lost.append(
                Problem(name, (thread.position.head,), f"its head is lost: it goes on from checkpoint {head}")
            )
        run, entries, is_complete = self._journal(number, name)
        if run is not None:
            run = _released(run, is_whole=is_whole and is_complete)
            thread = replace(thread, summary=replace(thread.summary, status=run.status))
        # How many there were is itself only stored: a number far beyond all that can be read is not believed.
        last = max(min(thread.position.last, max(kept) + _UNREADABLE_MAX), *kept)
        return Plan(number, name, last, kept, thread, run, entries)

    def _listed(self, name: str) -> ThreadRow | None:
        """The thread as a listing has it, which compares less."""
        try:
            found = self._source.threads(prefix=name, after=None, limit=1)
        except Damaged:
            return None
        return found[0] if found and found[0].name == name else None

    def _unnamed(self, number: int) -> Plan:
        """A thread that was dropped, or of which nothing else is left: others use its cells."""
        last = max(seq for seq, _ in self._gathered.strays(number))
        name = f"cells of dropped thread {number} {os.urandom(8).hex()}"
        return Plan(number, name, last, frozenset(), None, None, ())

    # -- the journal -------------------------------------------------------------------------------------------------

    def _journal(self, number: int, name: str) -> tuple[RunRow | None, tuple[EffectRow, ...], bool]:
        """The run of a thread, its journal, and whether nothing of it is missing."""
        try:
            run = self._source.run(number)
        except Damaged as damage:
            self._lost.append(Problem(name, (), f"its run and journal are lost: {damage}"))
            return None, (), False
        if run is None:
            return None, (), True
        entries: list[EffectRow] = []
        holes: list[int] = []
        while True:
            page = self._entries(number, len(entries))
            if page is None:
                holes.append(len(entries) + 1)
                if len(holes) > _UNREADABLE_MAX:
                    break
                entries.append(_hole(entries[-1] if entries else None, run))
            elif page:
                entries += page
            else:
                break
        if holes:
            told = ", ".join(map(str, holes[:20])) + (" …" if len(holes) > 20 else "")
            self._lost.append(Problem(name, (), f"journal entries {told} are lost: each is in doubt now"))
        return run, tuple(entries), not holes

    def _entries(self, number: int, after: int) -> list[EffectRow] | None:
        """The entries that follow, or the next one of them; None if that is damaged."""
        for limit in (_PAGE, 1):
            try:
                return self._source.effects(number, after=after, limit=limit)
            except Damaged:
                continue
        return None

    # -- progress ----------------------------------------------------------------------------------------------------

    def _read(self, size: int) -> None:
        self._bytes += size

    def _tell(self, done: int, of: int) -> None:
        if self._progress is not None:
            self._progress(Looked(done, of, self._bytes))


def _is_sound(examined: Examined) -> bool:
    return not examined.problems or (not examined.is_chained and len(examined.problems) == 1)


def _released(run: RunRow, *, is_whole: bool) -> RunRow:
    """The record of a run in its new store: nobody holds it.

    Whether one goes on that has lost something is for a person to say: what it did may not be in its journal any more.
    """
    if run.status == "completed" or (is_whole and run.status != "running"):
        return replace(run, owner=None, lease_until=0, lease_first=0)
    if is_whole:
        # As one whose worker has just died: its lease has ended, on whatever clock.
        return replace(run, lease_until=0, lease_first=0)
    return replace(run, status="failed", reason=_LOST, owner=None, lease_until=0, lease_first=0, wake_at=0, wake_wall=0)


def _hole(before: EffectRow | None, run: RunRow) -> EffectRow:
    """What stands for a journal entry that is lost: something was begun, and nobody knows what became of it."""
    return EffectRow(
        branch=run.branch if before is None else before.branch,
        step=0 if before is None else before.step,
        key=f"lost {0 if before is None else before.number + 1}",
        name="lost",
        kind="irreversible",
        status="in_doubt",
        arguments=b"",
        fence=0,
        begun_at=run.created_at if before is None else before.begun_at,
        number=1 if before is None else before.number + 1,
    )
