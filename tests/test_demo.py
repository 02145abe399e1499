"""The examples run, and say what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONWARNINGS": "error",
        "TMPDIR": str(folder),
    }
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_demo_is_killed_twice_and_all_checks_hold(tmp_path: Path) -> None:
    demo = run("demo.py", tmp_path)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr == ""
    assert demo.stdout.count("was killed (SIGKILL)") == 2
    assert demo.stdout.count("nothing acknowledged was lost") == 2
    assert "FAILED" not in demo.stdout
    assert demo.stdout.endswith("All checks held.\n")
    assert list(tmp_path.iterdir()) == [], "the demo leaves nothing behind"


def test_the_readme_gives_the_figures_of_the_demo(tmp_path: Path) -> None:
    lines = run("demo.py", tmp_path).stdout.splitlines()
    measured = [int(line.split()[-2].replace(",", "")) for line in lines if line.endswith(" bytes")][-5:]
    last, copies, gzipped, _, optimized = measured
    readme = (EXAMPLES.parent / "README.md").read_text("utf-8")
    sentence = readme[readme.index("In the demo, ") : readme.index("(The text is made")]
    claimed = [int(figure.replace(",", "")) * 1000 for figure in re.findall(r"([\d,]+) kB", sentence)]
    # Another version of a compression library may give somewhat other sizes.
    assert claimed == [pytest.approx(size, rel=0.1) for size in (last, optimized, copies, gzipped)]


def test_the_demo_fails_when_a_check_does(tmp_path: Path) -> None:
    source = (EXAMPLES / "demo.py").read_text("utf-8")
    # An agent that starts from nothing each time, as it would if its state were lost.
    broken = source.replace("latest = thread.latest()\n", "latest = thread.latest()\n        latest = None\n", 1)
    assert broken != source
    (tmp_path / "broken.py").write_text(broken, "utf-8")
    demo = run(str(tmp_path / "broken.py"), tmp_path)
    assert demo.returncode == 1, demo.stdout + demo.stderr
    assert "A check FAILED." in demo.stdout


def test_the_demo_refuses_arguments_it_does_not_know(tmp_path: Path) -> None:
    demo = run("demo.py", tmp_path, "--help")
    assert demo.returncode == 2
    assert "usage:" in demo.stderr


def test_the_quickstart_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second = run("quickstart.py", tmp_path), run("quickstart.py", tmp_path)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert re.findall(r"\d+", first.stdout) == ["0", "1", "2", "3", "3", "2", "1"]
    assert second.stdout.startswith("resuming after step 3\nsaved step 4\n")
    assert "kept: [6, 5, 4, 3, 2, 1]" in second.stdout
