"""The terminal: text and JSON to stdout, messages to stderr, exit codes, colours, tables and a progress bar.

Stored text is escaped before it gets here, so that a terminal shows it and does not obey it.
"""

from __future__ import annotations

import enum
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import (
    Conflict,
    Damaged,
    HoldfastError,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NotFound,
    StoreError,
)
from holdfast.text import line, lines, nearest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# `rich` takes longer to import than most commands run, and `json` takes a part of it.
# ruff: noqa: PLC0415

_WIDEST: Final = 1 << 20
_WIDEST_TEXT: Final = 120
_GAP: Final = "  "
_LEAST: Final = 12  # a column is not shrunk below this width
_PATIENCE = 0.5  # seconds before the progress bar is drawn: most commands end sooner


# -- exit codes -------------------------------------------------------------------------------------------------------


class Exit(enum.IntEnum):
    """The exit codes of every command. Scripts rely on them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    IN_DOUBT = 5
    INTERRUPTED = 130  # as shells report SIGINT
    UNREAD = 141  # as shells report SIGPIPE


_CHANGING: Final = ("answer", "settle", "cancel", "fork", "rewind", "label", "tag", "prune", "drop", "erase")
_NAME: Final = """(?:'[^']*'|"[^"]*")"""
_MISSING: Final = re.compile(f"((?:there is no thread|thread {_NAME} has no checkpoint) {_NAME}); (.+)")
_CODES: tuple[tuple[type[HoldfastError], Exit], ...] = (
    (InvalidArgument, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
    (LeaseHeld, Exit.CONFLICT),
    (LeaseLost, Exit.CONFLICT),
)


def exit_code(error: HoldfastError) -> Exit:
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.ERROR)


def message_of(error: HoldfastError, verb: str | None = None) -> str:
    """Return the message of an error of a command in terms of commands, with the reason that the system gave."""
    cause = error.__cause__
    message = worded(str(error))
    if isinstance(error, Damaged) and verb in ("verify", "repair"):
        advice = "Restore" if verb == "repair" else "Try `holdfast repair TARGET`, or restore"
        what = message.removesuffix(_VERIFY).removesuffix(_REPAIR)
        return f"{what}; this command cannot read past it. {advice} a backup."
    if isinstance(error, NotFound):
        if re.fullmatch(f"there is no thread {_NAME}", message):
            message = f"{message}; `holdfast threads` lists the threads"
        return _with_no_change(message) if verb in _CHANGING else message
    if (
        isinstance(error, StoreError)
        and isinstance(cause, OSError)
        and cause.strerror
        and cause.strerror not in message
    ):
        end = "." if message.endswith(".") else ""
        return f"{message.removesuffix('.')} ({cause.strerror}){end}"
    return message


def _with_no_change(message: str) -> str:
    """Return the message of an error of a command that changes threads; nothing was changed."""
    found = _MISSING.fullmatch(message)
    if found is None:
        return message
    advice = found[2][0].upper() + found[2][1:]
    return f"{found[1]}; nothing was changed. {advice}{'' if advice.endswith('?') else '.'}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" for the known word closest to `word`, or "" if none is close."""
    found = nearest(word, known)
    return f"; did you mean {found[0]!r}?" if found else ""


# -- stdout and stderr -------------------------------------------------------------------------------------------------


def write(text: str) -> None:
    """Write text to stdout and flush. Characters that its encoding lacks are escaped.

    Raises HoldfastError if the write fails, and BrokenPipeError, which ends a command silently, if the pipe is closed.
    """
    with checked_stdout():
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()


@contextmanager
def checked_stdout() -> Generator[None]:
    """Raise HoldfastError if a write to stdout fails, BrokenPipeError if the pipe is closed."""
    if sys.stdout is None:
        raise HoldfastError("stdout is closed; nothing was written")
    try:
        yield
    except BrokenPipeError:
        _discard_stdout()
        raise
    except OSError as error:
        _discard_stdout()
        raise HoldfastError(f"cannot write to stdout ({error.strerror}); the output is incomplete") from error


def _discard_stdout() -> None:
    """Redirect stdout to the null device, so that the interpreter's flush at exit does not fail again."""
    with suppress(OSError, ValueError):  # stdout may be an object without a file
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.dup2(nothing, sys.stdout.fileno())
        finally:
            os.close(nothing)


def put(line: str | Text) -> None:
    """Write a line to stdout; a styled one in colours, if the terminal shows them."""
    write(f"{line if isinstance(line, str) else _ansi(line)}\n")


def put_json(value: Any) -> None:
    """Write a value to stdout as JSON."""
    import json

    write(f"{json.dumps(value, indent=2)}\n")


def say(line: str) -> None:
    """Write one line to stderr, in one call because several threads may write. Does nothing if stderr is closed."""
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def is_at_terminal() -> bool:
    """Whether a person can be asked."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())


def report_lost(lost: Iterable[str], otherwise: Exit = Exit.OK) -> Exit:
    """Report unreadable parts of a damaged store. Return ERROR if there are any, else `otherwise`."""
    messages = [line(each) for each in lost]
    for each in messages:
        say(f"cannot be read: {each}")
    if messages:
        say("The rest is shown. `holdfast verify` lists the damage, `holdfast repair` copies what can be read.")
    return Exit.ERROR if messages else otherwise


# -- styled lines ------------------------------------------------------------------------------------------------------


def styled(text: str, style: str | None = None) -> Text:
    """Return a text in a style, as `rich` names it: "bold", "dim", "red", …"""
    from rich.text import Text

    return Text.assemble((text, style or ""))


def joined(parts: Iterable[str | Text], separator: str = _GAP) -> Text:
    """Return one line of several parts."""
    from rich.text import Text

    return Text(separator).join([Text(part) if isinstance(part, str) else part for part in parts])


def shortened(text: str, width: int) -> str:
    """Return a text cut to a number of columns, with an ellipsis."""
    return text if len(text) * 2 <= width else _cut(styled(text), width).plain


def fitted(prefix: str | Text, text: str | Text) -> Text:
    """Return a line after its prefix, cut to the terminal."""
    whole = joined([prefix, text], " ")
    whole.rstrip()
    return _cut(whole, columns())


def _cut(line: Text, width: int) -> Text:
    line.truncate(max(width, 1), overflow="ellipsis")
    return line


def wrapped(text: str, first: str = "", others: str | None = None) -> list[str]:
    """Return the lines of a text, wrapped to the terminal; the first after an indent, the others after another."""
    indent = " " * len(first) if others is None else others
    width = text_width() - max(len(first), len(indent))
    found = [each.plain for each in styled("\n".join(lines(text))).wrap(_console(), max(width, _LEAST), tab_size=1)]
    return [f"{indent if at else first}{each}".rstrip() for at, each in enumerate(found)] or [first.rstrip()]


def text_width() -> int:
    """Return the width for text, which is hard to read in wider lines."""
    return min(columns(), _WIDEST_TEXT)


def columns(otherwise: int = _WIDEST) -> int:
    """Return the width to write in: $COLUMNS, else the terminal's; for a pipe, by default practically unlimited."""
    return shutil.get_terminal_size((otherwise, 0)).columns


def is_coloured() -> bool:
    """Whether to write colours: stdout is a terminal that shows them, and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout is not None and sys.stdout.isatty())


def _ansi(line: Text) -> str:
    if not is_coloured():
        return line.plain
    console = _console()
    # One escape sequence before and one after each part: a line can be cut between parts.
    return "".join(
        segment.style.render(segment.text) if segment.style and segment.text else segment.text
        for segment in line.render(console)
    )


@cache
def _console() -> Console:
    from rich.console import Console

    return Console(color_system="standard", force_terminal=True)


# -- tables ------------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of a table. If `shrinks`, it may be cut when the table is too wide."""

    title: str
    is_right: bool = False
    shrinks: bool = False
    style: Callable[[str], str | None] | None = None


def table(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    """Yield the lines of a table, titles first. Columns that are empty in every row are left out.

    If shrinking is not enough, columns are left out at the right, but not the first two. Rows are measured and cut by
    `rich`, which knows how wide characters are; its own tables take seconds for some thousand rows.
    """
    from rich.cells import cell_len

    kept = [at for at in range(len(heads)) if any(row[at] for row in rows) or not at]
    shown = [heads[at] for at in kept]
    texts = [[row[at] for at in kept] for row in rows]
    widths = [max([cell_len(head.title), *(cell_len(row[at]) for row in texts)]) for at, head in enumerate(shown)]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > columns():
        at = max((at for at in range(len(widths)) if shown[at].shrinks), key=lambda at: widths[at], default=None)
        if at is not None and widths[at] > _LEAST:
            widths[at] -= 1
        elif len(widths) > 2:
            widths.pop()
        else:
            break
    yield _row(shown, widths, [head.title for head in shown], lambda _: "bold")
    for row in texts:
        yield _row(shown, widths, row)


def _row(
    heads: Sequence[Column], widths: Sequence[int], row: Sequence[str], title: Callable[[str], str] | None = None
) -> Text:
    from rich.cells import cell_len
    from rich.text import Text

    line = Text()
    for head, width, text in zip(heads, widths, row, strict=False):  # `widths` ends with the last column shown
        shown = shortened(text, width)
        space = " " * (width - cell_len(shown))
        style = title or head.style
        line.append(f"{_GAP if line else ''}{space if head.is_right else ''}")
        line.append(shown, None if style is None else style(text))
        line.append("" if head.is_right else space)
    line.rstrip()
    return _cut(line, columns())


# -- progress ----------------------------------------------------------------------------------------------------------

Show = Callable[[str, int, int | None], None]
"""Show progress: what is being done, how much is done, and the total if known."""


@contextmanager
def progress(what: str) -> Generator[Show]:
    """Yield a function that reports progress on stderr; the bar shows the elapsed time if it is never called.

    The function does nothing if stderr is not a terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _what, _done, _of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    shape = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn())
    bar = Progress(*shape, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None, count="")

    def show(what: str, done: int, of: int | None) -> None:
        count = f"{done:,} of {of:,}" if of is not None else f"{done:,}" if done else ""
        bar.update(task, description=what, completed=done, total=of, count=count)

    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield show
    finally:
        timer.cancel()
        timer.join()  # it may be drawing the bar just now
        if bar.live.is_started:
            bar.stop()


# -- Python calls in messages, replaced by the commands that do the same ----------------------------------------------

_VERIFY: Final = "; run `holdfast verify` to see what is affected"
_REPAIR: Final = "; try the command `holdfast repair TARGET`, or restore a backup"
_MISSING_KEY: Final = "which is not there; nothing was changed. Add it to $HOLDFAST_KEY."
_SENTENCES: Final = (
    ("Call hf.undo(), or pass past_effects=True (--past-effects)", "Pass --past-effects to rewind anyway"),
    ("history() lists", "`holdfast log` lists"),
    ("Call latest() and try again", "Try again"),
    ("Call latest() to load it", "`holdfast show` shows it"),
    ("Open it with cipher=holdfast.Cipher(…), or set HOLDFAST_KEY", "Set HOLDFAST_KEY"),
    ("hf.settle(THREAD, NUMBER, NotDone())", "`holdfast settle THREAD NUMBER --not-done`"),
    ("Try again later, or pass wait=.", "Try again later."),
    ("pass early=True (--early)", "pass --early"),
    (
        "is waiting and has no result yet. hf.waiting() lists what it waits for.",
        "is waiting and has no result yet; `holdfast inbox` shows what it waits for",
    ),
    ("Ask again later, or pass a longer wait=.", "Ask again later, or pass --wait."),
    ("or pass force=True if", "or pass --force if"),
    ("which this cipher does not have; nothing was changed. Add it to `keys`.", _MISSING_KEY),
    (
        "is in doubt and the run waits. Settle it with hf.settle.",
        "is in doubt and the run waits: see `holdfast inbox`.",
    ),
    ("hf.run with other guards resumes it", "a program with other guards can resume it"),
    (
        "so there is no result. Start a run with hf.run or hf.submit.",
        "so there is no result; `holdfast show` shows its state, `holdfast submit` starts a run in a new thread",
    ),
    (
        "act must be a record or an id that hf.acts() returned",
        "ACT must be an id; nothing was changed. `holdfast acts` shows the ids of acts.",
    ),
    ("(fakes=), or allow it with live=True", "(--fakes), or allow it with --live"),
)
_VERBS: Final = {"run": "resume", "waiting": "inbox", "stuck": "inbox"}
_CALL: Final = re.compile(
    r"\bhf\.(acts|answer|backup|cancel|effects|erase|fingerprint|repair|rekey|release|run|settle|stuck|submit|threads|verify|waiting)\b"
    r"(?:\([^()]*\))?"
)
# Quoted text is a name, and is not replaced.
_NAMES: Final = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


def worded(message: str) -> str:
    """Return a message, or the reason of a run, with commands in place of Python calls.

    Further lines are a traceback of the application, whose code stays as it is.
    """
    first, newline, others = message.partition("\n")
    parts = _NAMES.split(first)
    return "".join(part if at % 2 else _reworded(part) for at, part in enumerate(parts)) + newline + others


def _reworded(text: str) -> str:
    for python, command in _SENTENCES:
        text = text.replace(python, command)
    return _CALL.sub(lambda found: f"`holdfast {_VERBS.get(found[1], found[1])}`", text)
