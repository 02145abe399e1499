"""The examples run, and say what they promise."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import holdfast
from tests.examples.played import EXAMPLES, INVOICES, played_demo, run, run_python
from tests.selection import in_full

CARELESS = """
import sys
import holdfast
from holdfast.demo import clerk

post = clerk.dispute

@holdfast.tool(effect="irreversible", in_doubt="rerun")
def dispute(invoice: str, reason: str):
    return post(invoice, reason)

clerk.dispute = dispute
clerk.main(*sys.argv[1:])
"""


def section(output: str, title: str) -> list[str]:
    """The lines of one of the demo's tables."""
    _, _, rest = output.partition(f"\n{title}\n")
    return [line.strip() for line in rest.partition("\n\n")[0].splitlines()]


def figure(output: str, name: str) -> int:
    row = next(line for line in section(output, "What happened") if line.startswith(name))
    return int(re.findall(r"\d+", row.removeprefix(name))[0])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo prints, shortened."""
    return (played_demo(tmp_path_factory) / "output.txt").read_text("utf-8")


def test_all_checks_of_the_demo_hold(demo: str) -> None:
    assert [line.split()[0] for line in section(demo, "Checks")] == ["ok"] * 9
    assert "\nAll checks held.\n" in demo


def test_the_demo_shows_progress_and_ends_with_how_to_look_at_it(demo: str) -> None:
    progress = re.findall(r"^ +(\d+) of (\d+) invoices, \d+ kills?: .+$", demo, re.MULTILINE)
    assert [int(of) for _, of in progress] == [INVOICES] * len(progress)
    assert len({done for done, _ in progress}) > 2
    end = demo.partition("\nLook at it:\n")[2].splitlines()
    assert re.fullmatch(r"  cd .*killed'?", end[0])
    commands = [line.partition("holdfast ")[2] for line in end if re.match(r"  (\S+ -m )?holdfast ", line)]
    assert [command.split()[0] for command in commands] == (
        ["threads", "log", "effects", "ui", "inbox", "settle", "resume", "drill"]  # test_tour follows them
    )
    assert end[-1].startswith("The files are in ")


@in_full("it runs the demo a second time")
def test_the_outcome_of_the_demo_as_json_and_without_a_folder_to_keep(tmp_path: Path) -> None:
    done = run_python(tmp_path, "-m", "holdfast", "demo", "--invoices", "4", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    told = json.loads(done.stdout)
    assert told["ok"]
    assert set(told["checks"].values()) == {True}
    assert Path(told["store"]).is_relative_to(tmp_path), "in the folder for temporary files"
    assert Path(told["store"]).exists()


def test_the_figures_of_the_demo_agree_with_its_timeline(demo: str) -> None:
    timeline = section(demo, "Timeline")
    kills = sum("KILLED" in line for line in timeline)
    assert kills == figure(demo, "kills (SIGKILL)") >= 1
    assert sum("resumes in step" in line for line in timeline) == figure(demo, "resumes") >= kills - 1
    assert sum("a person settles" in line for line in timeline) >= 1
    assert [line.split()[0] for line in section(demo, "Ledger")] == ["1"] * INVOICES
    assert figure(demo, "model requests") <= 2 * INVOICES + 1 + kills  # two for each invoice, and the last


def test_its_page_says_what_the_demo_checks(demo: str) -> None:
    page = (EXAMPLES.parent / "docs" / "start" / "demo.md").read_text("utf-8")
    said = re.findall(r"^    ok  (.+)$", page, re.MULTILINE)
    assert said == [line.removeprefix("ok").strip() for line in section(demo, "Checks")]


@in_full("it runs the demo a second time")
def test_the_demo_fails_when_a_letter_is_posted_twice(tmp_path: Path) -> None:
    (tmp_path / "careless.py").write_text(CARELESS, "utf-8")
    call = "run_demo(seed=7, invoices=4, kills=8, keep=Path('kept'), clerk='careless')"
    code = f"import sys; from pathlib import Path; from holdfast.demo.show import run_demo; sys.exit(not {call})"
    done = run_python(tmp_path, "-c", code)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "A check FAILED." in done.stdout
    assert "FAILED  the ledger has every payment and every dispute exactly once" in done.stdout


def test_the_demo_refuses_arguments_it_does_not_know(tmp_path: Path) -> None:
    for words, message in (
        (("--faster",), "unknown option '--faster'"),
        (("--keep", "."), ". exists; nothing was run"),
    ):
        demo = run_python(tmp_path, "-m", "holdfast", "demo", *words)
        assert demo.returncode == 2
        assert demo.stderr.startswith(f"holdfast demo: {message}")


def test_the_quickstart_makes_each_call_once(tmp_path: Path) -> None:
    first, second = run("quickstart.py", tmp_path), run("quickstart.py", tmp_path)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout == second.stdout == "completed paid\n"
    with holdfast.open(tmp_path / "agent.db") as hf:
        assert [effect.name.rpartition(".")[2] for effect in hf.effects("order-42")] == ["ask", "charge", "ask"]
