"""Every measured number in README.md and docs/ is that of the committed results."""

from __future__ import annotations

import re

from scripts.numbers import CLAIMS, ROOT, Claim, measured, rendered, rewrite
from tests.cases import for_each

# Numbers in README.md that are not measured: of the story, of versions, of the code.
FIXED = {"38", "40", "39", "42", "1999", "300", "0", "3.11", "2,000", "2.0", "30"}
# Units of speed. A number with one of them is measured.
SPEED = re.compile(r"\d (?:steps|turns|saves|checkpoints|MB|calls)/s\b")
# These pages are written by commands, or give the reason of a decision with the way it was measured.
ELSEWHERE = ("docs/benchmarks.md", "docs/internals/", "docs/trust/crash-lab.md")


@for_each("claim", CLAIMS)
def test_every_claim_has_the_measured_numbers(claim: Claim) -> None:
    text = (ROOT / claim.page).read_text("utf-8")
    assert rendered(claim, measured()) in text, f"{claim.text}: run python -m scripts.numbers"


def test_the_readme_has_no_other_numbers() -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / "README.md").read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    values = measured()
    for claim in CLAIMS:
        text = text.replace(rendered(claim, values), "")
    assert set(re.findall(r"\d[\d.,]*(?<![.,])", text)) <= FIXED


def test_speeds_are_in_the_benchmarks_only() -> None:
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [
        page for page in pages if not page.startswith(ELSEWHERE) and SPEED.search((ROOT / page).read_text("utf-8"))
    ] == []


def test_a_number_is_rewritten() -> None:
    claim = Claim("x.md", "| **{a} → {b}** | stored")
    values = {"a": "407 MB", "b": "1.96 MB"}
    assert rewrite("| **1 kB → 2,000 GB** | stored\n", claim, values) == "| **407 MB → 1.96 MB** | stored\n"
    assert rewrite("| **407 MB → not measured yet** | stored", claim, values) == rendered(claim, values)
    assert rendered(claim, {"a": "407 MB"}) == "| **407 MB → not measured yet** | stored"
