"""The page of the kill experiment is what its command makes of the committed numbers."""

from __future__ import annotations

from typing import Any

from bench import durability


def test_the_page_and_its_plot_are_those_of_the_committed_numbers() -> None:
    for path, text in durability.written(durability.kept_numbers()).items():
        assert path.read_text("utf-8") == text, f"{path.name}: run make durability"


def test_repetitions_are_added_up_over_all_kills() -> None:
    def kills(effects: int, models: int) -> list[dict[str, Any]]:
        return [{"effects": effects, "models": models, "reads": 0, "restart": 0.1, "bytes": 4000}] * 2

    numbers = {"strands": {"version": "9.1", "rows": {"four alone": kills(1, 3), "four": kills(0, 1)}}}
    page, plot = durability.written(numbers).values()
    assert "| Strands 9.1 | alone (none) | 2 | 6 | 0 | 100 ms | 4 kB |" in page
    assert "| Strands 9.1 | with Holdfast | 0 | 2 | 0 | 100 ms | 4 kB |" in page
    assert plot.count(">Strands 9.1, alone<") == 2, "one panel for purchases and one for model calls"
    assert all(f">{value}</text>" in plot for value in (2, 6, 0))
