"""Round trips of whatever was done to threads: saved, forked, rewound, labelled, deleted, pruned, dropped, run."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Conflict, Holdfast, NotFound, Retention
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.threads.branches import named
from tests.selection import tries
from tests.threads.wholes import KINDS, opened, seen

THREADS = ("a", "b", "c\ud800", "d/e")
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_PLACE = st.integers(1, 6)
_DONE = st.one_of(
    st.tuples(st.just("save"), st.sampled_from(THREADS), _PLAIN, st.integers(0, 70)),
    st.tuples(st.just("fork"), st.sampled_from(THREADS), st.sampled_from(THREADS), _PLACE),
    st.tuples(st.just("rewind"), st.sampled_from(THREADS), _PLACE),
    st.tuples(st.just("delete"), st.sampled_from(THREADS), _PLACE),
    st.tuples(st.just("label"), st.sampled_from(THREADS), _PLACE),
    st.tuples(st.just("prune"), st.sampled_from(THREADS), st.integers(0, 3)),
    st.tuples(st.just("drop"), st.sampled_from(THREADS)),
    st.tuples(st.just("run"), st.sampled_from(THREADS[:2]), st.integers(1, 3)),
)


def do(hf: Holdfast, deed: tuple[Any, ...]) -> None:
    verb, name, *given_ = deed
    thread = hf.thread(name)
    if verb == "save":
        value, count = given_
        head = thread.latest()
        messages = [] if head is None or "messages" not in head.state else head.state["messages"]
        state = {"messages": [*messages, *([{"n": value, "text": "x" * count * 9}] * (count % 4))], "value": value}
        thread.save({**state, "prompt": "Be careful. " * (800 if count > 35 else 1)}, metadata={"count": count})
    elif verb == "fork":
        thread.fork(given_[0], at=f"@{given_[1]}")
    elif verb == "label":
        named(hf.context, name, f"@{given_[0]}", label=f"label {given_[0]}", tags=["t"])
    elif verb == "prune":
        thread.prune(Retention(keep_last=given_[0], keep_labelled=False))
    elif verb == "drop":
        thread.drop()
    elif verb == "run":
        with hf.run(name, start={"n": 0}, policy=holdfast.EveryN(1)) as run:
            for step in run.steps():
                run.model(str, step)
                if step % 3 == given_[0] % 3:
                    break
    else:
        getattr(thread, verb)(f"@{given_[0]}")


# Each kind once on either side.
@pytest.mark.parametrize(("kind", "target"), list(zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True)))
@settings(
    max_examples=tries(30, 12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(deeds=st.lists(_DONE, min_size=1, max_size=14))
def test_what_is_exported_comes_back(kind: str, target: str, tmp_path: Path, deeds: list[tuple[Any, ...]]) -> None:
    number = len(list(tmp_path.iterdir()))
    with opened(kind, tmp_path, f"from {number}") as hf, opened(target, tmp_path, f"to {number}") as new:
        for deed in deeds:
            with contextlib.suppress(Conflict, NotFound):
                do(hf, deed)
        out = io.BytesIO()
        assert export_jsonl(hf, out).ok
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(out.getvalue())
        report = import_from(new, "jsonl", str(file))
        assert report.ok, report
        assert seen(new) == seen(hf)
        assert new.verify().ok
        again = import_from(new, "jsonl", str(file))
        assert (again.ok, again.checkpoints, again.present) == (True, 0, report.checkpoints)
        # And out again, the same.
        back = io.BytesIO()
        export_jsonl(new, back)
        third = tmp_path / f"{number}.back.jsonl"
        third.write_bytes(back.getvalue())
        with opened("memory", tmp_path) as last:
            assert import_from(last, "jsonl", str(third)).ok
            assert seen(last) == seen(hf)
