"""Parameters that commands share: the store, threads, JSON values, durations, counts, and confirmation."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from holdfast.cli.terminal import Exit, is_at_terminal, say, write
from holdfast.errors import Damaged, HoldfastError, InvalidArgument

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

FORM: Final = "JSON, @FILE to read a file, or - to read stdin"
_OFFERED: Final = 100  # thread names, by completion
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


# -- commands ----------------------------------------------------------------------------------------------------------


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


def verb(*, store: bool = True, details: str = "") -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command: its function gets the store as `location`, and `as_json`.

    Its docstring and `details`, whose lines are not joined, are the help.
    """

    def declare(function: Callable[..., Any]) -> click.Command:
        def run(**given: Any) -> Any:
            from holdfast.cli.location import Location  # noqa: PLC0415 - slow to import, and not needed for help

            if store:
                given["location"] = Location(given.pop("url"), given.pop("namespace"))
            return function(**given)

        help_text = inspect.cleandoc(function.__doc__ or "") + (f"\n\n\b\n{details}" if details else "")
        command = click.command(function.__name__.removesuffix("_"), cls=Verb, help=help_text)(function)
        command.callback = run
        if store:
            command.params += [
                click.Option(["--store", "url"], metavar="URL", help="a path, dir:path or a URL"),
                click.Option(["--namespace"], metavar="NAME", help='the namespace (default: "default")'),
            ]
        command.params.append(click.Option(["--json", "as_json"], is_flag=True, help="write JSON to stdout"))
        return command

    return declare


def one_of(*given: tuple[str, object]) -> None:
    """Raise a usage error if more than one of these options is given."""
    names = [name for name, value in given if value not in (None, False)]
    if len(names) > 1:
        raise click.UsageError(f"{names[0]} and {names[1]} exclude each other")


# -- threads -----------------------------------------------------------------------------------------------------------


def thread(name: str = "thread", metavar: str = "THREAD", **given: Any) -> Callable[[F], F]:
    """Add an argument that names a thread, or a checkpoint of one, and is completed by the shell."""
    return click.argument(name, metavar=metavar, shell_complete=_threads, **given)


def _threads(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    import contextlib  # noqa: PLC0415 - as below
    import io  # noqa: PLC0415

    from click.shell_completion import CompletionItem  # noqa: PLC0415

    from holdfast.cli.location import Location  # noqa: PLC0415

    with suppress(HoldfastError), contextlib.redirect_stderr(io.StringIO()):  # an error would garble the prompt
        given = Location(ctx.params.get("url"), ctx.params.get("namespace"))
        with given.open_existing() as hf:
            names = [info.name for info in hf.threads(prefix=begun, limit=_OFFERED)]
        return [CompletionItem(name) for name in names if name.isprintable()]
    return []


# -- types of values, for `type=` of an option -------------------------------------------------------------------------


def count(least: int = 0, most: int | None = None) -> Callable[[Any], int]:
    """Return a type: a whole number between two limits."""

    def convert(value: Any) -> int:
        text = str(value)
        is_number = text.isascii() and text.isdecimal() and len(text) <= 15
        if not is_number or not least <= int(text) <= (int(text) if most is None else most):
            limits = f", {least} or more" if most is None else f" from {least} to {most}"
            raise click.BadParameter(f"{text!r} is not a whole number{limits}")
        return int(text)

    return convert


def duration(value: Any) -> float:
    """Parse a duration in seconds, written as 90, 90s, 45m, 12h, 30d or 2w."""
    found = _DURATION.fullmatch(str(value))
    if found is None or not (seconds := float(found[1]) * _SECONDS[found[2]]) < 1e12:
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 45m, 12h, 30d or 2w")
    return seconds


def seconds(least: float, most: float) -> Callable[[Any], float]:
    """Return a type: a number of seconds between two limits."""

    def convert(value: Any) -> float:
        try:
            number = float(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a number of seconds") from None
        if not least <= number <= most:
            raise click.BadParameter(f"{value!r} is not a number of seconds from {least:g} to {most:g}")
        return number

    return convert


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise click.BadParameter(f"{text!r} is not HOST:PORT, like 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


# -- options that several commands have -------------------------------------------------------------------------------


def limit(most: int, what: str) -> Callable[[F], F]:
    """Add --limit, where 0 means all."""
    return click.option(
        "--limit", metavar="N", type=count(), default=most, help=f"at most N {what} (default: {most}; 0: all)"
    )


def tools_option(what: str) -> Callable[[F], F]:
    """Add --tools, which names a list of functions."""
    return click.option("--tools", metavar="APP", help=f"{what}: a list of functions, as module:attribute")


lease_option: Final = click.option(
    "--lease",
    metavar="SECONDS",
    type=seconds(0.05, 86_400),
    default=30.0,
    help="how long a process that is silent keeps a run (default: 30)",
)
by_option: Final = click.option("--by", metavar="WHO", help="the person that decides, stored with the decision")


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
        raise InvalidArgument(f"{what}: cannot read {path} ({error.strerror})") from error
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
    """Whether a command may carry out the plan that it has shown."""

    def __init__(self, *, yes: bool, dry_run: bool, as_json: bool) -> None:
        one_of(("--yes", yes), ("--dry-run", dry_run))
        self.is_given = yes
        self._dry_run = dry_run
        self._is_asked = is_at_terminal() and not as_json

    def ask(self) -> bool:
        """Return whether to continue. Asks only at a terminal and not with --json."""
        if self.is_given or self._dry_run:
            return self.is_given
        if not self._is_asked:
            say("nothing was changed; pass --yes to do it, or --dry-run to see only the plan")
            return False
        sys.stderr.write("Continue? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return True
        say("nothing was changed")
        return False

    @property
    def refused(self) -> Exit:
        """The exit code if the plan was not carried out: OK after --dry-run or "no", USAGE if --yes was missing."""
        return Exit.OK if self._dry_run or self._is_asked else Exit.USAGE


def consent(function: F) -> F:
    """Add --yes and --dry-run."""
    function = click.option("--dry-run", is_flag=True, help="show the plan and change nothing")(function)
    return click.option("--yes", is_flag=True, help="do not ask for confirmation")(function)
