"""Records that were forged, one decoder at a time: a value or an error of Holdfast's own, and nothing else."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CallFailed
from holdfast.runs.record import error_of
from tests.cases import for_each
from tests.hostile.forged_records import DECODERS, decode, kept


@for_each(("name", "data"), kept())
def test_what_was_once_more_than_an_error_is_refused(name: str, data: bytes) -> None:
    assert decode(name, data) is None


@for_each("name", DECODERS)
def test_what_was_written_is_read(name: str) -> None:
    assert decode(name, DECODERS[name][1]) is not None


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=200))
def test_any_bytes_are_a_record_or_an_error(name: str, data: bytes) -> None:
    decode(name, data)


@given(st.sampled_from(sorted(DECODERS)), st.data())
def test_any_change_of_a_record_is_a_record_or_an_error(name: str, data: st.DataObject) -> None:
    good = DECODERS[name][1]
    at = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(at, len(good)))
    decode(name, good[:at] + data.draw(st.binary(max_size=12)) + good[end:])


class TestStoredNamesOfErrors:
    """The class of a failure that is raised again is looked up by a name that is stored."""

    def test_nothing_is_imported(self) -> None:
        sys.modules.pop("concurrent.futures.process", None)
        import concurrent.futures

        concurrent.futures.__dict__.pop("ProcessPoolExecutor", None)
        assert type(error_of("concurrent.futures.ProcessPoolExecutor: x")) is CallFailed
        assert "concurrent.futures.process" not in sys.modules

    @pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt", "eval", "print", "os.system", "sys.exit"])
    def test_only_errors_are_made(self, name: str) -> None:
        assert type(error_of(f"{name}: 1")) is CallFailed

    def test_a_name_without_end_takes_no_time(self) -> None:
        assert type(error_of("a." * 500_000 + "b: x")) is CallFailed
