"""Check that a commit is valid before anything is changed."""

from __future__ import annotations

from typing import Final

from holdfast.errors import InvalidArgument
from holdfast.stores import leases
from holdfast.stores.contract import Commit

_LARGEST_PIECE: Final = 8 * 2**20


def check_form(commit: Commit) -> None:
    """`InvalidArgument` if the commit contradicts itself."""
    last, move = (commit.expect.last, commit.expect.move) if commit.expect else (0, 0)
    if (commit.row.seq, commit.row.move) != (last + 1, move + 1):
        raise InvalidArgument("a commit's seq and move must follow those it expects; nothing was stored")
    if commit.row.deleted:
        raise InvalidArgument("a commit cannot contain a deleted checkpoint; nothing was stored")
    if any(run.refs and len(run.refs) != len(run.cells) for run in commit.appends):
        raise InvalidArgument("an append's refs must be empty or have one entry per cell; nothing was stored")
    if any(len(piece) > _LARGEST_PIECE for value in commit.blobs for piece in value.pieces):
        raise InvalidArgument("a piece of a blob is larger than 8 MiB; nothing was stored")
    leases.check_form(commit)
