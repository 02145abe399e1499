"""The agent of 40 steps: killed in step 38, it resumes at step 39. Its output is the picture of the README.

python -m tests.examples.test_forty_steps    draw docs/images/killed.svg anew
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent.parent
AGENT = ROOT / "examples" / "forty_steps.py"
PICTURE = ROOT / "docs" / "images" / "killed.svg"

LEFT, TOP, LINE, WIDTH = 24, 62, 21, 560
COLOURS = {"$": "#9fb3c8", "!": "#ff7b72", "+": "#7ee787", " ": "#e6edf3"}


def played(folder: Path) -> list[tuple[str, str]]:
    """Run the agent, killed once, and return the lines of the terminal, each with its kind."""
    first = _run(folder, {"DIE": "1"}, ends_with=-9)
    second = _run(folder, {}, ends_with=0)
    return [
        ("$", "$ python agent.py"),
        *((" ", line) for line in [*first[:2], "⋮", *first[-3:]]),
        ("!", "Killed"),
        ("$", "$ python agent.py"),
        *(("+", line) for line in second),
        ("$", "$ cat charges.txt"),
        *(("+", line) for line in (folder / "charges.txt").read_text("utf-8").splitlines()),
    ]


def _run(folder: Path, environment: dict[str, str], *, ends_with: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, AGENT],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ends_with, done.stderr
    return done.stdout.splitlines()


def drawn(lines: list[tuple[str, str]]) -> str:
    """A terminal with these lines, as SVG."""
    height = TOP + LINE * len(lines) + 12
    dots = "".join(
        f'<circle cx="{22 + 20 * i}" cy="22" r="6" fill="{c}"/>'
        for i, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    rows = [
        f'<text x="{LEFT}" y="{TOP + LINE * number}" fill="{COLOURS[kind]}">{escape(text)}</text>'
        for number, (kind, text) in enumerate(lines)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
            "<title>An agent is killed in step 38 of 40 and resumes at step 39. The card is charged once.</title>",
            f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#0d1117"/>',
            dots,
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">',
            *rows,
            "</g>",
            "</svg>",
            "",
        ]
    )


def test_the_next_process_resumes_at_step_39_and_the_card_is_charged_once(tmp_path: Path) -> None:
    lines = [text for _, text in played(tmp_path)]
    after = lines[lines.index("Killed") + 2 :]
    assert after == [
        "step 39: the model is asked",
        "step 40: the model is asked",
        "completed 40 steps",
        "$ cat charges.txt",
        "order 42: 1999",
    ]
    assert "the card is charged: 1999 cents for order 42" in lines


def test_the_picture_of_the_readme_shows_it(tmp_path: Path) -> None:
    assert PICTURE.read_text("utf-8") == drawn(played(tmp_path)), "run python -m tests.examples.test_forty_steps"


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        PICTURE.write_text(drawn(played(Path(name))), "utf-8")
