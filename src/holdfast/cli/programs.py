"""Programs that come with Holdfast: the demo, the drill, the web page, the skill, and shell completion."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.command import FORM, Output, argument, count, option, seconds, value_in, verb
from holdfast.cli.location import Location
from holdfast.cli.named_objects import load, load_redaction, load_tools
from holdfast.cli.terminal import Exit, did_you_mean, put, say, write
from holdfast.errors import HoldfastError, InvalidArgument, NotInstalled

# These commands need packages that are slow to import, or extras.
# ruff: noqa: PLC0415

_SHELLS: Final = ("bash", "zsh", "fish")


@verb(store=False)
@option("--seed N", "the seed of the invoices and kills", int, 7)
@option("--invoices N", "from 4 to 40", count(4, 40), 20)
@option("--kills N", "at most N kills", count(), 30)
@option("--full", "also print the timeline, the ledger and the table of the drill")
@option("--plain", "no live display")
@option("--keep FOLDER", "the new folder for its files (default: a temporary one)", Path)
def demo(as_json: bool, **given: Any) -> Exit:
    """Watch an agent pay invoices while its processes are killed again and again. Nothing is paid twice.

    It runs offline and takes about ten seconds. Its files are kept, so that you can look at the store afterwards.
    --json writes the outcome as JSON instead.
    """
    from holdfast.demo.show import run_demo

    return Exit.OK if run_demo(**given, as_json=as_json) else Exit.ERROR


# -- drill -------------------------------------------------------------------------------------------------------------


def _fault_names(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    from holdfast.drill import FAULTS

    names = FAULTS if text == "all" else tuple(text.split(","))
    for name in names:
        if name not in FAULTS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(FAULTS)}, all{did_you_mean(name, FAULTS)}")
    return names


@verb(store=False)
@argument("APP")
@option("--start JSON", f"the start state, required unless APP is a Drill: {FORM}")
@option("--tools APP", "the agent's tools, whose declarations are read: a list of functions")
@option("--fakes APP", "functions to call instead of the tools: a list of functions")
@option("--live", "call the agent's own tools, in every run")
@option("--recorded", "call models and tools in the first run only")
@option(
    "--watch PATH",
    "a file or folder that must end with the same contents as without kills; may be repeated",
    multiple=True,
)
@option("--answers JSON", "answers to run.wait, by name")
@option("--points N", "disturb at N evenly spread points (default: all points)", count(1))
@option("--timeout SECONDS", "time limit of one run (default: 60)", seconds(0.001, 1e9))
@option(
    "--faults NAMES",
    "also inject faults: timeout, connection-cut, rate-limit, truncated-reply; separated by commas, or all",
    callback=_fault_names,
)
def drill(as_json: bool, app: str, tools: str | None, fakes: str | None, **given: Any) -> Exit:
    """Kill an agent at every point of its run, resume it each time, and report what was repeated, lost or different.

    APP names the agent as "module:attribute": a holdfast.testing.Drill, a handler, or a dict with one handler. Modules
    in the current folder can be imported. Each run uses a new store in a temporary folder.

    The agent's own tools are not called unless you pass --live; --fakes names functions that replace them, with the
    same names. Model functions are called. With --recorded, models and tools are called in the first run only, and the
    other runs replay their results.

    --faults also lets tools time out after they have acted, cuts their connections, lets a rate limit refuse model
    calls, and truncates replies of models: in one call of each run. The run must end as without the fault.
    """
    from holdfast.drill import run_drill

    options = {name: value for name, value in given.items() if value not in (None, False, ())}
    options |= {name: value_in(options[name], f"--{name}") for name in ("start", "answers") if name in options}
    options |= {name: load_tools(named) for name, named in (("tools", tools), ("fakes", fakes)) if named is not None}
    if not isinstance(options.get("answers", {}), dict):
        raise InvalidArgument("--answers is not a JSON object, like '{\"approve\": true}'")
    if given["watch"]:
        options["watch"] = list(given["watch"])
    report = run_drill(_drill(app, options))
    write(f"{report.json().decode() if as_json else report.table()}\n")
    return Exit.OK if report.passed else Exit.ERROR


def _drill(app: str, options: dict[str, Any]) -> Any:
    """Return the drill that APP describes, with the options applied over it."""
    import msgspec

    from holdfast.drill import Drill

    found = _agent(app)
    if isinstance(found, Drill):
        return msgspec.structs.replace(found, **options)
    if isinstance(found, Mapping):
        if len(found) != 1:
            names = ", ".join(map(str, found)) or "none"
            raise InvalidArgument(f"{app} has the handlers {names}; name one of them, as module:function")
        found = next(iter(found.values()))
    if not callable(found) or isinstance(found, type):
        raise InvalidArgument(
            f"{app} is of type {type(found).__name__}; it must be a holdfast.testing.Drill or a handler"
        )
    if "start" not in options:
        raise InvalidArgument(
            f"{app} is a handler, so the start state is missing; pass --start, or name a holdfast.testing.Drill"
        )
    return Drill(handler=found, **options)


def _agent(app: str) -> Any:
    """Load APP. An invalid Drill in its module raises InvalidArgument, without a traceback."""
    from holdfast.drill.child import place_of

    try:
        return load(app)
    except HoldfastError as failure:
        cause = failure.__cause__
        if not isinstance(cause, InvalidArgument):
            raise
        place = place_of(traceback.TracebackException.from_exception(cause))
        raise InvalidArgument(f"{app}: {cause} (in {place})") from None


# -- the web page, and completion --------------------------------------------------------------------------------------


@verb()
@option("--port N", "the port (default: any free port)", count(0, 65_535))
@option("--allow-write", "let the page change the store")
@option("--redact APP:FN", "a function (module:attribute) applied to every string but names")
@option("--graph APP", "the LangGraph graph (module:attribute) that an answer resumes")
def ui(
    location: Location, as_json: bool, port: int | None, allow_write: bool, redact: str | None, graph: str | None
) -> Exit:
    """Browse a store in a web browser: threads, timelines, states, what a resume would do, and the store itself.

    Serves a page on 127.0.0.1 until Ctrl-C, and writes its address, which contains a secret token. The page is
    read-only; --allow-write lets it fork, rewind, answer, settle, cancel and prune. --redact names a function that
    takes and returns a string; it is applied before a page is sent. Needs the extra holdfast[ui].
    """
    function = load_redaction(redact)
    try:
        from holdfast.ui import serve
    except ImportError as error:
        raise NotInstalled("the web page needs jinja2, starlette and uvicorn: pip install 'holdfast[ui]'") from error

    def ready(url: str) -> None:
        put(json.dumps({"url": url, "writes": allow_write}) if as_json else url)
        say("Anyone with this address can read the store. Press Ctrl-C to stop.")

    with location.open_existing() as hf:
        found = None if graph is None else load(graph)
        serve(
            hf, port=port or 0, title=str(location), allow_write=allow_write, redact=function, ready=ready, graph=found
        )
    return Exit.OK


@verb(store=False)
def skill() -> Output:
    """Write a skill for coding agents: how to add Holdfast to a project, step by step.

    Save it where your agent looks for skills, for example with `holdfast skill > .claude/skills/holdfast/SKILL.md`.
    """
    text = Path(__file__).with_name("skill.md").read_text("utf-8")
    return Output({"skill": text}, text.removesuffix("\n"))


@verb(store=False)
@argument("SHELL", kind=click.Choice(_SHELLS))
def completion(shell: str) -> Output:
    """Write a shell completion script. It completes commands, options and thread names. SHELL is bash, zsh or fish.

    bash: add `eval "$(holdfast completion bash)"` to ~/.bashrc. zsh: add `eval "$(holdfast completion zsh)"` to
    ~/.zshrc, after compinit. fish: write the script to ~/.config/fish/completions/holdfast.fish.
    """
    from holdfast.cli.main import completion_script

    script = completion_script(shell)
    return Output({"shell": shell, "script": script}, script)
