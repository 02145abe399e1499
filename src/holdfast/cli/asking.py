"""Confirmation of commands that delete data: --yes, --dry-run, or a question on the terminal."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.talk import say


def add_yes(parser: ArgumentParser) -> None:
    """Add --yes and --dry-run."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    how.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")


def may_go_on(arguments: Namespace) -> bool:
    """Whether to carry out the plan that was shown. Asks only if stdin and stderr are terminals and not with --json."""
    if arguments.yes or arguments.dry_run:
        return bool(arguments.yes)
    if arguments.json or not _is_asked():
        say("nothing was changed; pass --yes to do it, or --dry-run to see only the plan")
        return False
    sys.stderr.write("Continue? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say("nothing was changed")
    return False


def refused(arguments: Namespace) -> Exit:
    """Return the exit code if the plan was not carried out: OK after --dry-run or "no", USAGE if --yes was missing."""
    return Exit.OK if arguments.dry_run or (_is_asked() and not arguments.json) else Exit.USAGE


def _is_asked() -> bool:
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())
