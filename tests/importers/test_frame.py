"""The frame that every importer stands in: threads one after another, findings, progress, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast import Conflict, Damaged, InvalidArgument
from holdfast.errors import StoreFull
from holdfast.importers.frame import ImportFinding, ImportTally, SourceThread, Unusable, run


class Line:
    """A thread of two checkpoints."""

    def __init__(self, name: str, move: Callable[[ImportTally], None] | None = None) -> None:
        self.name = name
        self._move = move
        self.told: list[str] = []

    def move(self, tally: ImportTally) -> None:
        self.told.append("move")
        if self._move is not None:
            self._move(tally)
        tally.moved(1)
        tally.present()

    def check(self, tally: ImportTally) -> None:
        self.told.append("check")
        tally.checked()
        tally.checked()


class Lines:
    def __init__(self, *lines: Line) -> None:
        self.lines = lines

    def size(self) -> int:
        return 2 * len(self.lines)

    def threads(self) -> Iterator[SourceThread]:
        yield from self.lines

    def close(self) -> None:
        pass


def fail(error: Exception) -> Callable[[ImportTally], None]:
    def move(tally: ImportTally) -> None:
        raise error

    return move


def test_each_thread_is_moved_and_then_checked() -> None:
    lines = Lines(Line("a"), Line("b"))
    report = run(lines, dry_run=False, progress=None)
    assert [line.told for line in lines.lines] == [["move", "check"]] * 2
    assert (report.threads, report.checkpoints, report.writes, report.present, report.checked) == (2, 2, 2, 2, 4)
    assert report.ok


def test_a_dry_run_checks_nothing() -> None:
    lines = Lines(Line("a"))
    report = run(lines, dry_run=True, progress=None)
    assert lines.lines[0].told == ["move"]
    assert report.dry_run


@pytest.mark.parametrize("error", [Unusable("no"), InvalidArgument("no"), Conflict("no"), Damaged("no")])
def test_a_thread_that_cannot_be_moved_is_skipped(error: Exception) -> None:
    report = run(Lines(Line("a", fail(error)), Line("b")), dry_run=False, progress=None)
    assert report.skipped == (ImportFinding("a", None, "no"),)
    assert report.checkpoints == 1
    assert not report.ok


@pytest.mark.parametrize("error", [StoreFull("no"), OSError("no"), KeyboardInterrupt()])
def test_anything_else_ends_the_import(error: BaseException) -> None:
    def move(tally: ImportTally) -> None:
        raise error

    with pytest.raises(type(error)):
        run(Lines(Line("a", move), Line("b")), dry_run=False, progress=None)


def test_progress_never_goes_past_the_end() -> None:
    """Somebody may add to a source while it is read."""
    told: list[tuple[int, int]] = []

    def more(tally: ImportTally) -> None:
        for _ in range(9):
            tally.moved(0)

    run(Lines(Line("a", more)), dry_run=False, progress=lambda _, done, of: told.append((done, of)))
    assert told[-1] == (4, 4)
    assert max(done for done, _ in told) == 4


def test_many_findings_are_counted() -> None:
    def many(tally: ImportTally) -> None:
        for number in range(1500):
            tally.skip_checkpoint(str(number), "bad")
            tally.remark(None, "odd")

    report = run(Lines(Line("a", many)), dry_run=False, progress=None)
    assert len(report.skipped) == len(report.remarks) == 1000
    assert report.untold == 1000
    assert report.skipped[0].what == "checkpoint 0: bad"
    assert report.remarks[0].what == "odd"
