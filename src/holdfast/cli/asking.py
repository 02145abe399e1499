"""What cannot be taken back is shown first, and done when a person says so: with --yes, or when they are asked."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.talk import say


def add_yes(parser: ArgumentParser) -> None:
    """The options of a verb that shows a plan first."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="do it without asking")
    how.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def may_go_on(arguments: Namespace) -> bool:
    """Whether what was shown is to be done. Nobody is asked where nobody could answer, or would read the question."""
    if arguments.yes or arguments.dry_run:
        return bool(arguments.yes)
    if arguments.json or not _is_asked():
        say("nothing was changed: say --yes to do it, or --dry-run to look only")
        return False
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say("nothing was changed")
    return False


def refused(arguments: Namespace) -> Exit:
    """How a verb ends that was not to go on: looking only is no mistake, leaving out --yes in a script is."""
    return Exit.OK if arguments.dry_run or (_is_asked() and not arguments.json) else Exit.USAGE


def _is_asked() -> bool:
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())
