"""The bench of buckets counts the requests in docs/reference/bucket.md. The simulation finds where stores break."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import bucket, fleet_scale
from bench.simulation import Bucket, Latency, Load, Server, simulate

FAST = Latency(0.02, 0.1)
LOAD = Load(1_000)  # 400 writes a second


@pytest.fixture(scope="module")
def rows() -> list[bucket.Row]:
    return bucket.rows(checkpoints=20)


def test_a_save_is_one_request_and_a_cold_latest_of_1000_checkpoints_at_most_five() -> None:
    rows = bucket.rows()
    save, latest = bucket.found(rows, "save, warm"), bucket.found(rows, "latest, cold")
    assert (save.requests["put"], save.total) == (1, 1)
    assert latest.total <= bucket.MOST_REQUESTS


def test_a_step_and_a_renewal_read_nothing(rows: list[bucket.Row]) -> None:
    step, renewal = bucket.found(rows, bucket.STEP), bucket.found(rows, bucket.RENEWAL)
    assert 3 <= step.total < 3.5  # on a busy machine, a result may be written before the call that follows it
    assert (renewal.requests["put"], renewal.total) == (1, 1)


def test_prices_are_parameters(rows: list[bucket.Row]) -> None:
    prices = bucket.Prices(writing=1000, reading=0)
    assert prices.of(bucket.found(rows, "save, warm").requests) == 1
    assert "leases of the runs, of 3 seconds each, cost 1,000.00 dollars" in bucket.million(
        rows, bucket.Prices(1, 1), seconds=1, lease=3
    )


@pytest.mark.parametrize(
    ("store", "holds"),
    [
        (Bucket(FAST, prefixes=1, limit=500), True),
        (Bucket(FAST, prefixes=1, limit=300), False),
        (Bucket(FAST, prefixes=4, limit=120), True),
        (Server(FAST, commits=500), True),
        (Server(FAST, commits=300), False),
    ],
)
def test_a_store_breaks_above_its_limit(store: Bucket | Server, holds: bool) -> None:
    found = simulate(LOAD, store, seconds=60)
    assert found.holds is holds
    assert holds == (found.steps == pytest.approx(100, rel=0.05))


def test_a_bucket_above_its_limit_refuses() -> None:
    found = simulate(LOAD, Bucket(FAST, prefixes=1, limit=300), seconds=60)
    assert found.refusals > 0
    assert found.writes == pytest.approx(300, rel=0.02)


def test_a_handle_that_writes_for_too_many_agents_is_too_slow() -> None:
    store = Bucket(Latency(0.03, 0.03001), prefixes=100)
    assert simulate(LOAD._replace(agents_per_handle=50), store).holds
    assert not simulate(LOAD._replace(agents_per_handle=125), store).holds


def test_the_page_and_its_plots_are_written(rows: list[bucket.Row], tmp_path: Path) -> None:
    page = tmp_path / "scale.md"
    page.write_text(f"before\n{fleet_scale.START}\nold\n{fleet_scale.END}\nafter\n", encoding="utf-8")
    plan = fleet_scale.Plan(fleet_scale.options(["--agents", "2000", "--simulated", "6"]), rows)
    sides = fleet_scale.measured(plan, 2_000, 6)
    fleet_scale.write(plan, sides, page=page, images=tmp_path)
    text = page.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| PostgreSQL, one server | 2,000 |" in text
    assert sides[-1].outcomes[0].steps == pytest.approx(200, rel=0.1)
    assert len([ET.parse(path) for path in tmp_path.glob("*.svg")]) == 3  # noqa: S314 - written a moment ago
