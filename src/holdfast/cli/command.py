"""Commands: their declaration, their options and values, the plan that they ask about, and their output."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, redirect_stderr, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from holdfast.cli.terminal import Exit, is_at_terminal, progress, put, put_json, report_lost, say, write
from holdfast.errors import Damaged, HoldfastError, InvalidArgument

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.text import Text

F = TypeVar("F", bound=Callable[..., Any])

_OFFERED: Final = 100  # thread names, by completion
APP: Final = "names your handlers, as module:attribute, like app:handlers"
APP_OR_GRAPH: Final = "names your handlers, or the graph of a LangGraph thread, as module:attribute, like app:graph"
FORM: Final = "JSON, @FILE to read a file, or - to read stdin"
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Output(NamedTuple):
    """The output of a command: data for --json, or lines for people with notes about them on stderr.

    `lost` are messages about damaged records. They are always reported, and make the exit code ERROR. `failure` is
    reported after the rest, and sets the exit code.
    """

    data: Any
    lines: str | Iterable[str | Text] = ()
    notes: Iterable[str] = ()
    lost: Iterable[str] = ()
    code: Exit = Exit.OK
    failure: HoldfastError | None = None

    def report(self, as_json: bool) -> Exit:
        """Write the output and return the exit code."""
        if as_json:
            from holdfast.inspect import data_of  # noqa: PLC0415 - slow to import, and not needed for help

            put_json(data_of(self.data))
        else:
            for each in [self.lines] if isinstance(self.lines, str) else self.lines:
                put(each)
        code = report_lost(self.lost, self.code)
        for note in () if as_json else self.notes:
            say(note)
        if self.failure is not None:
            raise self.failure
        return code


class Verb(click.Command):
    """A command. Its callback returns the exit code; None means OK."""

    def get_help_option(self, ctx: click.Context) -> click.Option:
        """Write help with `write`, which handles closed pipes and encodings."""
        return help_option()


def help_option() -> click.Option:
    def show(ctx: click.Context, _option: click.Parameter, is_given: bool) -> None:
        if is_given and not ctx.resilient_parsing:
            write(f"{ctx.get_help()}\n")
            ctx.exit()

    return click.Option(
        ["-h", "--help"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="show this help"
    )


def verb(
    *, store: bool = True, asks: bool = False, bar: str | None = None, details: str = ""
) -> Callable[[Callable[..., Output | Exit]], click.Command]:
    """Declare a command by a function, which returns its output, or an exit code if it writes its output itself.

    The function gets what it names as parameters: `hf`, the store opened; `location`, the store to open; `as_json`;
    `show`, the progress of `bar`; and `agreed`, the consent of a command that `asks`. Its docstring and `details`,
    whose lines are not joined, are the help.
    """

    def declare(function: Callable[..., Output | Exit]) -> click.Command:
        wanted = inspect.signature(function).parameters

        def run(as_json: bool, url: str | None = None, namespace: str | None = None, **given: Any) -> Exit:
            from holdfast.cli.location import Location  # noqa: PLC0415 - slow to import, and not needed for help

            offered: dict[str, Any] = {"location": Location(url, namespace), "as_json": as_json}
            if asks:
                offered["agreed"] = Consent(yes=given.pop("yes"), dry_run=given.pop("dry_run"), as_json=as_json)
            with ExitStack() as held:
                if "hf" in wanted:
                    offered["hf"] = held.enter_context(offered["location"].open_existing())
                if bar is not None:
                    offered["show"] = held.enter_context(progress(bar))
                output = function(**given, **{name: each for name, each in offered.items() if name in wanted})
            return output.report(as_json) if isinstance(output, Output) else output

        help_text = inspect.cleandoc(function.__doc__ or "") + (f"\n\n\b\n{details}" if details else "")
        command = click.command(function.__name__.removesuffix("_"), cls=Verb, help=help_text)(function)
        command.callback = run
        if asks:
            option("--yes", "do not ask for confirmation")(command)
            option("--dry-run", "show the plan and change nothing")(command)
        if store:
            option("--store URL", "a path, dir:path or a URL", name="url")(command)
            option("--namespace NAME", 'the namespace (default: "default")')(command)
        option("--json", "write JSON to stdout", name="as_json")(command)
        return command

    return declare


# -- options and arguments ---------------------------------------------------------------------------------------------


def option(
    form: str, text: str, kind: Any = None, default: Any = None, *, name: str | None = None, **more: Any
) -> Callable[[F], F]:
    """Add an option, in the form of the help: "--limit N", or "--force" for a flag. The help states the default."""
    names, _, metavar = form.partition(" ")
    given: dict[str, Any] = {"metavar": metavar, "type": kind, **more} if metavar else {"is_flag": True, **more}
    if default is not None:
        given["default"] = default
        text = f"{text} (default: {default})"
    return click.option(*names.split("/"), *filter(None, [name]), help=text, **given)


def choice(form: str, kinds: Iterable[str], default: str | None = None, **more: Any) -> Callable[[F], F]:
    """Add an option that takes one of several words."""
    words = tuple(kinds)
    return option(form, ", ".join(words), click.Choice(words), default, **more)


def argument(metavar: str, name: str | None = None, kind: Any = None, **more: Any) -> Callable[[F], F]:
    """Add an argument, in the form of the help: "NAME", "[NAME]" if it may be missing, "[NAME]..." for several."""
    bare = metavar.strip("[].")
    is_many = metavar.endswith("...")
    given: dict[str, Any] = {
        "type": kind,
        "required": not metavar.startswith("["),
        "nargs": -1 if is_many else 1,
        **more,
    }
    return click.argument(name or bare.lower(), metavar=metavar, **given)


def thread(metavar: str = "THREAD", name: str | None = None) -> Callable[[F], F]:
    """Add an argument that names a thread, or a checkpoint of one, and is completed by the shell."""
    return argument(metavar, name, shell_complete=_threads)


def _threads(ctx: click.Context, _param: click.Parameter, started: str) -> list[CompletionItem]:
    import io  # noqa: PLC0415 - as below

    from click.shell_completion import CompletionItem  # noqa: PLC0415

    from holdfast.cli.location import Location  # noqa: PLC0415

    with suppress(HoldfastError), redirect_stderr(io.StringIO()):  # an error would garble the prompt
        given = Location(ctx.params.get("url"), ctx.params.get("namespace"))
        with given.open_existing() as hf:
            names = [info.name for info in hf.threads(prefix=started, limit=_OFFERED)]
        return [CompletionItem(name) for name in names if name.isprintable()]
    return []


# -- kinds of values ---------------------------------------------------------------------------------------------------


def number(
    kind: Callable[[str], float], least: float = 0, most: float | None = None, *, what: str
) -> Callable[[Any], float]:
    """Return a type: a number between two limits."""

    def convert(value: Any) -> float:
        with suppress(ValueError):
            found = kind(str(value))
            if least <= found and (most is None or found <= most):
                return found
        limits = f", {least:g} or more" if most is None else f" from {least:g} to {most:g}"
        raise click.BadParameter(f"{str(value)!r} is not a {what}{limits}")

    return convert


count: Final = partial(number, int, what="whole number")
seconds: Final = partial(number, float, what="number of seconds")


def duration(value: Any) -> float:
    """Parse a duration in seconds, written as 90, 90s, 45m, 12h, 30d or 2w."""
    found = _DURATION.fullmatch(str(value))
    if found is None or not (seconds := float(found[1]) * _SECONDS[found[2]]) < 1e12:
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 45m, 12h, 30d or 2w")
    return seconds


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise click.BadParameter(f"{text!r} is not HOST:PORT, like 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


# -- options that several commands have -------------------------------------------------------------------------------


def limit(most: int, what: str) -> Callable[[F], F]:
    """Add --limit, where 0 means all."""
    return option("--limit N", f"at most N {what}; 0 means all", count(), most)


def tools_option(what: str) -> Callable[[F], F]:
    """Add --tools, which names a list of functions."""
    return option("--tools APP", f"{what}: a list of functions, as module:attribute")


lease_option: Final = option(
    "--lease SECONDS", "how long a process that is silent keeps a run", seconds(0.05, 86_400), 30
)
by_option: Final = option("--by WHO", "the person that decides, stored with the decision")


def one_of(*given: tuple[str, object]) -> None:
    """Raise a usage error if more than one of these options is given."""
    names = [name for name, value in given if value not in (None, False)]
    if len(names) > 1:
        raise click.UsageError(f"{names[0]} and {names[1]} exclude each other")


# -- JSON values -------------------------------------------------------------------------------------------------------


def value_in(text: str, what: str) -> Any:
    """Parse a value in the form that `FORM` describes. Raises InvalidArgument if it is not JSON."""
    if text == "-":
        return _parsed(_stdin(what), what)
    if text.startswith("@"):
        return value_in_file(text[1:], what)
    return _parsed(text.encode("utf-8", "surrogateescape"), what, hint=text)


def value_in_file(path: str, what: str) -> Any:
    """Read the value in a file; "-" is stdin."""
    if path == "-":
        return _parsed(_stdin(what), what)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InvalidArgument(
            f"{what}: cannot read {path} ({error.strerror}); nothing was changed. Check the path."
        ) from error
    return _parsed(data, f"{what} in {path}")


def _stdin(what: str) -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidArgument(f"{what}: stdin is a terminal or closed; pipe the JSON to it")
    return sys.stdin.buffer.read()


def _parsed(data: bytes, what: str, hint: str | None = None) -> Any:
    import json  # noqa: PLC0415 - most commands take no values

    from holdfast.codec import msgpack  # noqa: PLC0415
    from holdfast.codec.jsontext import from_text  # noqa: PLC0415

    try:
        json.loads(data)
    except RecursionError:
        raise InvalidArgument(f"{what} is nested too deeply") from None
    except ValueError as error:
        place = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        quoted = "" if hint is None or not _is_word(hint) else f"; write a string as '\"{hint}\"'"
        raise InvalidArgument(f"{what} is not JSON{place}{quoted}") from None
    try:
        # Also accept the $ forms that a directory store uses for values that JSON cannot express.
        return msgpack.decode(from_text(data.strip()))
    except Damaged:
        raise InvalidArgument(
            f"{what} holds an invalid $ form, a number that is too large, or NaN. "
            "docs/reference/format.md describes the forms."
        ) from None


def _is_word(text: str) -> bool:
    return text.isprintable() and '"' not in text and "'" not in text and len(text) <= 60


# -- confirmation of commands that delete ------------------------------------------------------------------------------


class Consent:
    """Whether a command may carry out its plan. `is_given` is whether it may already, by --yes."""

    def __init__(self, *, yes: bool, dry_run: bool, as_json: bool) -> None:
        one_of(("--yes", yes), ("--dry-run", dry_run))
        self.is_given = yes
        self._dry_run = dry_run
        self._as_json = as_json
        self._is_asked = is_at_terminal() and not as_json

    def to(self, plan: Iterable[str]) -> bool:
        """Show a plan, unless JSON is written, and return whether to carry it out. Asks only at a terminal."""
        for each in () if self._as_json else plan:
            put(each)
        if self.is_given or self._dry_run:
            return self.is_given
        if not self._is_asked:
            say("nothing was changed; pass --yes to do it, or --dry-run to see only the plan")
            return False
        sys.stderr.write("Continue? [y/N] ")
        sys.stderr.flush()
        typed = ""
        try:
            typed = sys.stdin.readline()
        finally:
            if not typed:  # Ctrl-C or Ctrl-D: the line has no end
                say("\nnothing was changed")
        if typed.strip().lower() in ("y", "yes"):
            return True
        if typed:
            say("nothing was changed")
        return False

    @property
    def refused(self) -> Exit:
        """The exit code if the plan was not carried out: OK after --dry-run or "no", USAGE if --yes was missing."""
        return Exit.OK if self._dry_run or self._is_asked else Exit.USAGE
