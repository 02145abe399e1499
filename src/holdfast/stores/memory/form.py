"""What a commit must look like before anything is changed."""

from __future__ import annotations

from typing import Final

from holdfast.errors import InvalidArgument
from holdfast.stores import leases
from holdfast.stores.contract import Commit

_LARGEST_PIECE: Final = 8 * 2**20


def check_form(commit: Commit) -> None:
    """`InvalidArgument` if it contradicts itself."""
    last, move = (commit.expect.last, commit.expect.move) if commit.expect else (0, 0)
    if (commit.row.seq, commit.row.move) != (last + 1, move + 1):
        raise InvalidArgument("A commit's seq and move must follow those it expects; nothing was stored.")
    if commit.row.deleted:
        raise InvalidArgument("A commit cannot bring a deleted checkpoint; nothing was stored.")
    if any(run.refs and len(run.refs) != len(run.cells) for run in commit.runs):
        raise InvalidArgument("A run needs refs for each of its cells or for none; nothing was stored.")
    if any(len(piece) > _LARGEST_PIECE for value in commit.values for piece in value.pieces):
        raise InvalidArgument("A piece of a shared value is over 8 MiB; nothing was stored.")
    leases.check_form(commit)
