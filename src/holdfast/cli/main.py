"""Entry point of the command line: the commands in groups, their errors, and shell completion."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

from holdfast.cli.command import Verb, help_option
from holdfast.cli.terminal import Exit, columns, did_you_mean, exit_code, message_of, say, write
from holdfast.errors import HoldfastError
from holdfast.text import line, nearest

# Each group: its title, and its commands with their module and summary. A module is imported when a command is called.
GROUPS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Start": {
        "demo": ("programs", "watch an agent survive being killed again and again"),
        "ui": ("programs", "browse a store in a web browser"),
        "skill": ("programs", "write a skill that tells coding agents how to add Holdfast"),
    },
    "Look": {
        "threads": ("look", "list threads, the newest first"),
        "log": ("look", "show the checkpoints of a thread, with branches and crashes"),
        "show": ("look", "show a checkpoint: its messages, or its state"),
        "diff": ("look", "show what changed between two checkpoints"),
        "effects": ("activity", "show the journal of a thread: every call and its outcome"),
        "watch": ("activity", "follow a thread live"),
        "stats": ("activity", "show the size and growth of a store"),
    },
    "Inbox": {
        "inbox": ("inbox", "list the runs that need you, with what there is to decide"),
        "answer": ("inbox", "answer a question that a run waits for"),
        "settle": ("inbox", "record the outcome of a call in doubt"),
        "cancel": ("inbox", "halt a run"),
        "resume": ("work", "resume the run of one thread, or run a fork"),
        "acts": ("inbox", "list acts that happen once, and which call has done them"),
        "release": ("inbox", "let an act happen again"),
    },
    "Edit": {
        "fork": ("edit", "start a new thread at a checkpoint of another"),
        "rewind": ("edit", "make an earlier checkpoint the head of its thread"),
        "label": ("edit", "give a checkpoint a label"),
        "tag": ("edit", "add a tag to a checkpoint"),
        "prune": ("edit", "delete old checkpoints"),
        "drop": ("edit", "delete whole threads"),
        "erase": ("edit", "delete threads, and remove their data from the store's files"),
    },
    "Work": {
        "worker": ("work", "run queued runs, and resume interrupted ones"),
        "submit": ("work", "queue a run for any worker"),
        "result": ("work", "write the result of a run"),
        "schedules": ("work", "list the schedules of runs"),
        "drill": ("programs", "kill an agent at every point of its run, and compare"),
    },
    "Transfer": {
        "import": ("transfer", "import threads from another system"),
        "export": ("transfer", "export threads as JSON lines, OpenTelemetry or a transcript"),
    },
    "Care": {
        "verify": ("care", "check the integrity of a store"),
        "backup": ("care", "copy a store while it is in use"),
        "repair": ("care", "copy the readable part of a damaged store into a new one"),
        "optimize": ("care", "merge segments and free disk space"),
        "rekey": ("care", "rewrap the keys of an encrypted store with the current key"),
        "fingerprint": ("care", "write a fingerprint of all threads, to detect a rollback later"),
        "doctor": ("care", "check that a store can be read and written"),
        "completion": ("programs", "write a shell completion script"),
    },
}
VERBS: Final = {name: each for verbs in GROUPS.values() for name, each in verbs.items()}

_ABOUT: Final = "Checkpoints and durable runs for LLM agents: look into a store, decide, resume and maintain it."
_STORE: Final = (
    "Without --store, a command uses $HOLDFAST_STORE, the store in the current folder (named in holdfast.toml, or the "
    "only *.db that is one), or the one in your data folder."
)
_CODES: Final = (
    "Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict or lease held, 5 calls in doubt, 130 interrupted "
    "(Ctrl-C), 141 output pipe closed."
)
_VARIABLE: Final = "_HOLDFAST_COMPLETE"
_WIDEST: Final = 100  # columns of help


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. `argv` defaults to the arguments of this process."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and _VARIABLE in os.environ:
        return _complete(os.environ[_VARIABLE])
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    verb = words[0] if words and words[0] in VERBS else None
    name = "holdfast" if verb is None else f"holdfast {verb}"
    try:
        group = _Group()
        with group.make_context("holdfast", words or ["--help"]) as context:
            ended = group.invoke(context)
            return Exit.OK if ended is None else int(ended)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        say(f"{name}: {_usage_message(error, name, words)}")
        return Exit.USAGE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return Exit.UNREAD
    except HoldfastError as error:
        say(f"{name}: {message_of(error, verb)}")
        return exit_code(error)


class _Group(click.Group):
    """All commands. A command's module is imported when the command is called."""

    def __init__(self) -> None:
        def version(ctx: click.Context, _option: click.Parameter, is_given: bool) -> None:
            if is_given:
                write(f"holdfast {_version()}\n")
                ctx.exit()

        option = click.Option(["-V", "--version"], is_flag=True, is_eager=True, expose_value=False, callback=version)
        option.help = "show the version"
        super().__init__(
            "holdfast", params=[option], help=_ABOUT, context_settings={"terminal_width": min(columns(80), _WIDEST)}
        )

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return help_option()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"holdfast.cli.{VERBS[cmd_name][0]}")
        found: Verb = getattr(module, "import_" if cmd_name == "import" else cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS:
            hint = did_you_mean(args[0], VERBS) or "; `holdfast` lists the commands"
            raise click.UsageError(f"unknown command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage("holdfast", "COMMAND [ARGUMENTS]")
        formatter.write_paragraph()
        formatter.write_text(_ABOUT)
        width = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", summary) for name, (_, summary) in verbs.items()])
        for text in ("`holdfast COMMAND --help` describes a command; --version prints the version.", _STORE, _CODES):
            formatter.write_paragraph()
            formatter.write_text(text)


def _usage_message(error: click.UsageError, name: str, words: Sequence[str]) -> str:
    """Return a message about wrong arguments in one line, in the words of the other messages."""
    if isinstance(error, click.NoSuchOption):
        if name == "holdfast":
            return f"the command comes before its options: holdfast COMMAND {error.option_name} …"
        return f"unknown option {error.option_name!r}{_near_option(error) or f'; see {name} --help'}"
    if isinstance(error, click.MissingParameter):
        kind = "option" if isinstance(error.param, click.Option) else "argument"
        return f"the {kind} {_parameter(error)} is missing; see {name} --help"
    if isinstance(error, click.BadParameter):
        return f"{_parameter(error)}: {error.message.rstrip('.')}"
    extra = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", error.message, re.DOTALL)
    if extra is not None:
        at = next((at for at, word in enumerate(words) if at > 1 and word.startswith("@")), None)
        hint = f"see {name} --help"
        if at is not None:
            hint = f"write a checkpoint with its thread, like {line(words[at - 1])}{line(words[at])}"
        return f"unexpected argument {extra[1]!a}; {hint}"
    message = error.message.rstrip(".")
    return f"{message[:1].lower()}{message[1:]}"


def _near_option(error: click.NoSuchOption) -> str:
    """Suggest an option, compared without dashes: they would make all names similar."""
    params = () if error.ctx is None else error.ctx.command.params
    known = {name.lstrip("-"): name for param in params for name in param.opts if name.startswith("--")}
    typed = error.option_name.lstrip("-")
    longer = [name for name in known if name.startswith(f"{typed}-")]
    found = longer[0] if len(longer) == 1 else next(iter(nearest(typed, known)), None)
    return "" if found is None else f"; did you mean {known[found]!r}?"


def _parameter(error: click.BadParameter) -> str:
    param: Any = error.param
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return str(param.metavar or param.name).strip("[].") if param is not None else "the arguments"


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - slow to import, and needed only here

    try:
        return metadata.version("holdfast")
    except metadata.PackageNotFoundError:
        return "(not installed)"


# -- completion --------------------------------------------------------------------------------------------------------


def completion_script(shell: str) -> str:
    """Return the script that makes a shell ask this program for completions."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - rarely needed

    _offer_quoted_names()
    kind = get_completion_class(shell)
    if kind is None:
        raise HoldfastError(f"there is no completion for {shell}")
    return kind(_Group(), {}, "holdfast", _VARIABLE).source().strip()


def _complete(instruction: str) -> int:
    """Answer a shell that asks for completions."""
    from click.shell_completion import shell_complete  # noqa: PLC0415

    _offer_quoted_names()
    return shell_complete(_Group(), {}, "holdfast", _VARIABLE, instruction)


def _offer_quoted_names() -> None:
    """Make completion in bash quote names, which may hold shell syntax, and accept ":", "@" and "=" in them.

    bash splits the line at these characters too, and replaces only the text after the last of them.
    """
    from click.shell_completion import BashComplete, CompletionItem, add_completion_class  # noqa: PLC0415

    class Bash(BashComplete):
        def get_completion_args(self) -> tuple[list[str], str]:
            words, current = super().get_completion_args()
            joined: list[str] = []
            is_open = False  # whether the next word continues the last one
            for word in [*words, current]:
                is_break = bool(word) and not word.strip(":@=")
                if joined and (is_break or is_open):
                    joined[-1] += word
                else:
                    joined.append(word)
                is_open = is_break
            whole = joined.pop()
            self._kept = whole.removesuffix(current if current.strip(":@=") else "")
            return joined, whole

        def format_completion(self, item: CompletionItem) -> str:
            # Twice, because the script of `click` reads the line without -r.
            quoted = re.sub(r"([^\w@%+=:,./-])", r"\\\\\1", str(item.value).removeprefix(self._kept))
            return f"{item.type},{quoted}"

    add_completion_class(Bash, "bash")
