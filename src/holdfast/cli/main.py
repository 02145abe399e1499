"""The command line's entry: finds the verb, reads its arguments, and turns errors into a message and an exit code."""

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

_ABOUT = "Holdfast keeps an LLM agent's work safe: its state step by step, back where it was after a crash."
_CODES = (
    "exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict or leased, 5 in doubt found, 130 interrupted, "
    "141 nobody reads it"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. `argv` are the words after `holdfast`, by default those of this process."""
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
    """Raises for wrong arguments instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def _print_message(self, message: str, file: object = None) -> None:
        """Help goes where all else does: it is cut off, or cannot be shown, in the same ways."""
        write(message)


class _Formatter(HelpFormatter):
    """Wraps a description to the terminal, paragraph by paragraph, and the help of an argument line by line."""

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
        allow_abbrev=False,  # an abbreviation would mean something else once there are more options
    )
    program.declare(parser)
    try:
        arguments, unknown = parser.parse_known_args(words)
    except SystemExit:  # of --help
        return Exit.OK
    if unknown:
        options: dict[str, Any] = parser._option_string_actions
        word = next((each for each in unknown if each.startswith("-")), unknown[0]).partition("=")[0]
        parser.error(f"{word!r} is not an argument of this verb{nearest(word, options)}")
    return program.run(arguments)


def _verb(words: list[str]) -> str:
    if not words:
        raise InvalidArgument(f"a verb is missing; there is {_listed()}; see holdfast --help")
    if words[0].startswith("-"):
        raise InvalidArgument(
            f"the verb comes first, options after it: holdfast VERB {words[0]} …; there is {_listed()}"
        )
    if words[0] not in VERBS:
        raise InvalidArgument(f"there is no verb {words[0]!r}{nearest(words[0], VERBS) or f'; there is {_listed()}'}")
    return words[0]


def _listed() -> str:
    return ", ".join(VERBS)


def _overview() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}}  {verb.summary}" for name, verb in VERBS.items())
    return (
        f"usage: holdfast VERB [arguments]\n\n{_ABOUT}\n\nverbs:\n{verbs}\n\n"
        f"`holdfast VERB --help` says what a verb takes. `holdfast --version` says which Holdfast this is.\n{_CODES}\n"
    )


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - slow to import, and nobody else asks

    try:
        return metadata.version("holdfast")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _message(error: HoldfastError) -> str:
    cause = error.__cause__
    message = worded(str(error))
    if isinstance(error, StoreError) and isinstance(cause, OSError) and cause.strerror:
        return f"{message} ({cause.strerror})"
    return message
