"""The same agent in every framework, alone and with Holdfast, killed at every point. `make durability`.

python -m bench.durability openai_agents    run one framework, in its environment; keep its numbers in bench/results
python -m bench.durability --page           write docs/trust/durability.md and its plot from the kept numbers

The agent has four steps with one irreversible tool, and a scripted model. A point is in a model call that was paid for,
before a tool acts, or after it. The program of a framework is one file: see tests/adapters/kill_world.py.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.bars import Bar, Panel, chart
from tests.adapters.kill_world import SCRIPTS, World, start

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "bench" / "results" / "durability.json"
PAGE: Final = ROOT / "docs" / "trust" / "durability.md"
PLOT: Final = ROOT / "docs" / "images" / "durability-frameworks.svg"
MODELS: Final = len(SCRIPTS["four"])
POINTS: Final = MODELS + 2 * (MODELS - 1)  # one in each model call, two in each tool
KEEPS: Final = {"four": ("agent.db*",), "four alone": ("own.db*", "cli/projects/*/*.jsonl")}  # files of the stores


Kept = dict[str, Any]  # the version of a framework, and its rows by scenario


class Framework(NamedTuple):
    """A framework: its program, its package, and its store if it is alone."""

    title: str
    program: str
    package: str | None
    own: str


FRAMEWORKS: Final = {
    "plain_loop": Framework("a loop of your own", "tests.adapters.small_framework", None, "none"),
    "pydantic_ai": Framework("Pydantic AI", "tests.adapters.pydantic_ai_agent", "pydantic-ai-slim", "none"),
    "openai_agents": Framework(
        "OpenAI Agents SDK", "tests.adapters.openai_agents_agent", "openai-agents", "SQLiteSession"
    ),
    "claude_agent_sdk": Framework(
        "Claude Agent SDK", "tests.adapters.claude_agent_sdk_agent", "claude-agent-sdk", "its transcript file"
    ),
    "strands": Framework("Strands", "tests.adapters.strands_agent", "strands-agents", "none"),
    "agent_framework": Framework(
        "Microsoft Agent Framework", "tests.adapters.agent_framework_agent", "agent-framework-core", "none"
    ),
    "google_adk": Framework("Google ADK", "tests.adapters.google_adk_agent", "google-adk", "none"),
    "langchain": Framework("LangChain", "tests.adapters.langchain_agent", "langchain", "none"),
}


def killed_at(framework: Framework, point: int, scenario: str) -> dict[str, Any]:
    """Kill the program at a point, start it again, and return what was repeated."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "world"
        folder.mkdir()
        (folder / "kill_at").write_text(str(point))
        first = start(framework.program, folder, scenario, "probe")
        assert first.returncode == -signal.SIGKILL, first.stderr
        (folder / "first").unlink(missing_ok=True)
        again = start(framework.program, folder, scenario, "probe")
        assert again.returncode == 0, again.stderr
        world = World(folder)
        restart, *_ = *world.lines("first"), *world.lines("ended")
        return {
            "models": len(world.lines("models")) - MODELS,
            "reads": len(world.lines("reads")) - 3,
            "effects": len(world.lines("ledger")) - 1,
            "restart": float(restart),
            "bytes": sum(path.stat().st_size for pattern in KEEPS[scenario] for path in folder.glob(pattern)),
        }


def run(key: str) -> None:
    """Run a framework, alone and with Holdfast, and keep the numbers."""
    framework = FRAMEWORKS[key]
    rows = {
        scenario: [killed_at(framework, point, scenario) for point in range(1, POINTS + 1)]
        for scenario in ("four alone", "four")
    }
    version = "" if framework.package is None else metadata.version(framework.package)
    kept = {**kept_numbers(), key: {"version": version, "rows": rows}}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    print(*lines(key, kept[key]), sep="\n")


def kept_numbers() -> dict[str, Kept]:
    """The kept numbers of the frameworks that have run."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def title(key: str, kept: Kept) -> str:
    return f"{FRAMEWORKS[key].title} {kept['version']}".strip()


def lines(key: str, kept: Kept) -> list[str]:
    """The rows of a framework in the table."""
    made = []
    for scenario, name in (("four alone", f"alone ({FRAMEWORKS[key].own})"), ("four", "with Holdfast")):
        rows = kept["rows"][scenario]
        models, reads, effects = (sum(row[kind] for row in rows) for kind in ("models", "reads", "effects"))
        restart = statistics.median(row["restart"] for row in rows) * 1000
        size = statistics.median(row["bytes"] for row in rows) / 1000
        made.append(
            f"| {title(key, kept)} | {name} | {effects} | {models} | {reads} | {restart:.0f} ms | {size:.0f} kB |"
        )
    return made


def panel(numbers: dict[str, Kept], kind: str, head: str) -> Panel:
    """Two bars per framework: how often it repeated something, alone and with Holdfast."""
    bars = []
    for key, kept in numbers.items():
        for scenario, own in (("four alone", False), ("four", True)):
            total = sum(row[kind] for row in kept["rows"][scenario])
            bars.append(Bar("with Holdfast" if own else f"{title(key, kept)}, alone", total, str(total), own=own))
    return Panel(head, bars)


def plot(numbers: dict[str, Kept]) -> str:
    return chart(
        f"Killed at each of {POINTS} points and started again: less is better",
        [
            panel(numbers, "effects", "bought twice"),
            panel(numbers, "models", f"model calls paid again: {MODELS} of the kills are in a model call"),
        ],
    )


HEAD: Final = f"""# Durability of agent frameworks

Written by `make durability`, which runs offline on one machine.

The same agent in each framework: four steps with tools, of which one buys, and a scripted model. It is killed (SIGKILL)
at each of its {POINTS} points, and the program is started again. A point is in a model call, after it was paid for, or
in a tool, before or after it acts. The tool that buys is declared with a probe.

![Purchases and model calls that were repeated, per framework, alone and with Holdfast](../images/{PLOT.name})

| framework | | bought twice | model calls paid again | reads repeated | restart | bytes |
|---|---|---|---|---|---|---|
"""

TAIL: Final = f"""
- The columns count repetitions over all {POINTS} kills. A model call in which the process dies has to be paid again:
  {MODELS} of the points are in model calls. In the same way, 3 of them are in reads, after their effect.
- Restart is the median time from the start of the second process, with its packages imported, to its first new call.
- Bytes are those of the framework's own store, or of the store of Holdfast, at the end.
- A framework without a store of its own starts again with its first step.
- The Claude Agent SDK asks its model again after each restart, because a session is resumed by a prompt. Its command
  line is started in the time of a restart. Entries that were not mirrored to its session store yet are lost.
"""


def written(numbers: dict[str, Kept]) -> dict[Path, str]:
    """The files to write: the page and its plot."""
    ordered = {key: numbers[key] for key in FRAMEWORKS if key in numbers}
    table = "\n".join(line for key, kept in ordered.items() for line in lines(key, kept))
    return {PAGE: HEAD + table + "\n" + TAIL, PLOT: plot(ordered)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", nargs="?", choices=FRAMEWORKS)
    parser.add_argument("--page", action="store_true", help="write docs/trust/durability.md and its plot")
    given = parser.parse_args()
    if given.framework is not None:
        run(given.framework)
    if given.page:
        for path, text in written(kept_numbers()).items():
            path.write_text(text)


if __name__ == "__main__":
    main()
