"""Entry point of the command line: parses arguments, runs the command, reports errors and the exit code."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, HelpFormatter
from collections.abc import Sequence
from typing import Any, NoReturn

from holdfast.cli.exits import Exit, exit_code
from holdfast.cli.output import write
from holdfast.cli.talk import nearest, say
from holdfast.cli.verbs import VERBS
from holdfast.cli.wording import worded
from holdfast.errors import HoldfastError, InvalidArgument, StoreError

_ABOUT = "Checkpoints and durable runs for LLM agents: inspect, resume and maintain a Holdfast store."
_CODES = (
    "exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict or lease held, 5 calls in doubt, "
    "130 interrupted (Ctrl-C), 141 output pipe closed"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. `argv` defaults to the arguments of this process."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = "holdfast"
    try:
        if words and words[0] in ("-h", "--help", "help"):
            words = [*words[1:2], "--help"]
        if words == ["--help"]:
            write(_overview())
            return Exit.OK
        if words in (["-V"], ["--version"]):
            write(f"holdfast {_version()}\n")
            return Exit.OK
        verb = _verb(words)
        name = f"holdfast {verb}"
        return _run(name, verb, words[1:])
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return Exit.UNREAD
    except HoldfastError as error:
        say(f"{name}: {_message(error)}")
        return exit_code(error)


class _Parser(ArgumentParser):
    """An argument parser that raises InvalidArgument instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def _print_message(self, message: str, file: object = None) -> None:
        """Write help with `write`, which handles closed pipes and encodings."""
        write(message)


class _Formatter(HelpFormatter):
    """Wraps descriptions paragraph by paragraph, and the help of an argument line by line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(super(_Formatter, self)._fill_text(each, width, indent) for each in text.split("\n\n"))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [line for each in text.split("\n") for line in super(_Formatter, self)._split_lines(each, width)]


def _run(name: str, verb: str, words: list[str]) -> int:
    program = VERBS[verb].load()
    parser = _Parser(
        prog=name,
        description=program.__doc__,
        epilog=_CODES,
        formatter_class=_Formatter,
        allow_abbrev=False,  # an abbreviation can become ambiguous when options are added
    )
    program.declare(parser)
    try:
        arguments, unknown = parser.parse_known_args(words)
    except SystemExit:  # raised by --help
        return Exit.OK
    if unknown:
        options: dict[str, Any] = parser._option_string_actions
        word = next((each for each in unknown if each.startswith("-")), unknown[0]).partition("=")[0]
        parser.error(f"unknown argument {word!r}{nearest(word, options)}")
    return program.run(arguments)


def _verb(words: list[str]) -> str:
    if not words:
        raise InvalidArgument(f"no command given; commands: {_listed()}; see holdfast --help")
    if words[0].startswith("-"):
        raise InvalidArgument(
            f"the command comes before its options: holdfast COMMAND {words[0]} …; commands: {_listed()}"
        )
    if words[0] not in VERBS:
        raise InvalidArgument(f"unknown command {words[0]!r}{nearest(words[0], VERBS) or f'; commands: {_listed()}'}")
    return words[0]


def _listed() -> str:
    return ", ".join(VERBS)


def _overview() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}}  {verb.summary}" for name, verb in VERBS.items())
    return (
        f"usage: holdfast COMMAND [arguments]\n\n{_ABOUT}\n\ncommands:\n{verbs}\n\n"
        f"`holdfast COMMAND --help` describes a command. `holdfast --version` prints the version.\n{_CODES}\n"
    )


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - slow to import, and needed only here

    try:
        return metadata.version("holdfast")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _message(error: HoldfastError) -> str:
    cause = error.__cause__
    message = worded(str(error))
    if isinstance(error, StoreError) and isinstance(cause, OSError) and cause.strerror:
        end = "." if message.endswith(".") else ""
        return f"{message.removesuffix('.')} ({cause.strerror}){end}"
    return message
