"""The examples run, and say what they promise."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.examples.played import EXAMPLES, INVOICES, played_demo, run
from tests.selection import in_full


def section(output: str, title: str) -> list[str]:
    """The lines of one of the demo's tables."""
    _, _, rest = output.partition(f"\n{title}\n")
    return [line.strip() for line in rest.partition("\n\n")[0].splitlines()]


def figure(output: str, name: str) -> int:
    row = next(line for line in section(output, "What it took") if line.startswith(name))
    return int(re.findall(r"\d+", row.removeprefix(name))[0])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo prints, shortened."""
    text = (played_demo(tmp_path_factory) / "output.txt").read_text("utf-8")
    return re.sub(r"\nLook at it: .*\n", "", text)


def test_all_checks_of_the_demo_hold(demo: str) -> None:
    assert [line.split()[0] for line in section(demo, "Checks")] == ["ok"] * 9
    assert demo.endswith("All checks held.\n")


def test_the_figures_of_the_demo_agree_with_its_timeline(demo: str) -> None:
    timeline = section(demo, "Timeline")
    kills = sum("KILLED" in line for line in timeline)
    assert kills == figure(demo, "kills (SIGKILL)") >= 1
    assert sum("resumes in step" in line for line in timeline) == figure(demo, "resumes") >= kills - 1
    assert sum("a person settles" in line for line in timeline) >= 1
    assert [line.split()[0] for line in section(demo, "Ledger")] == ["1"] * INVOICES
    assert figure(demo, "model requests") <= 2 * INVOICES + 1 + kills  # two for each invoice, and the last


def test_the_readme_says_what_the_demo_checks(demo: str) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text("utf-8")
    said = re.findall(r"^    ok  (.+)$", readme, re.MULTILINE)
    assert said == [line.removeprefix("ok").strip() for line in section(demo, "Checks")]


@in_full("it runs the demo a second time")
def test_the_demo_fails_when_a_letter_is_posted_twice(tmp_path: Path) -> None:
    broken = tmp_path / "examples"
    shutil.copytree(EXAMPLES, broken)
    source = (broken / "clerk.py").read_text("utf-8")
    careless = source.replace('in_doubt="ask"', 'in_doubt="rerun"')
    assert careless != source
    (broken / "clerk.py").write_text(careless, "utf-8")
    done = run(str(broken / "demo.py"), tmp_path, "--invoices", "4", "--kills", "8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "A check FAILED." in done.stdout
    assert "FAILED  the ledger has every payment and every dispute exactly once" in done.stdout


def test_the_demo_refuses_arguments_it_does_not_know(tmp_path: Path) -> None:
    demo = run("demo.py", tmp_path, "--faster")
    assert demo.returncode == 2
    assert "usage:" in demo.stderr


def test_the_quickstart_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second = run("quickstart.py", tmp_path), run("quickstart.py", tmp_path)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert re.findall(r"\d+", first.stdout) == ["0", "1", "2", "3", "3", "2", "1"]
    assert second.stdout.startswith("resuming after step 3\nsaved step 4\n")
    assert "kept: [6, 5, 4, 3, 2, 1]" in second.stdout
