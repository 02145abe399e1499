"""Make an earlier checkpoint the head of its thread. Nothing is deleted: later checkpoints stay, as a branch.

A rewind does not undo the effects of calls. The command lists the effects that were made after the checkpoint. If some
cannot be undone, it changes nothing and exits with 4, unless you pass --past-effects.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, put, put_json
from holdfast.cli.naming import checkpoint_data, described
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.cli.wording import worded
from holdfast.errors import EffectsAhead, InvalidArgument
from holdfast.looking.ahead import Ahead, effects_ahead
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.looking.references import find
from holdfast.text import quoted


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("reference", metavar="THREAD@REF", help="the checkpoint: thread@-2, thread@label, …")
    parser.add_argument("--past-effects", action="store_true", help="rewind even past effects that cannot be undone")
    parser.add_argument("--dry-run", action="store_true", help="list the effects, and change nothing")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        found = find(hf, arguments.reference)
        if found.is_head and found.thread == arguments.reference:
            raise InvalidArgument(f"name the checkpoint to rewind to, like {found.thread}@-2")
        passed = effects_ahead(hf, found.thread, found.checkpoint)
        refused: EffectsAhead | None = None
        if not arguments.dry_run:
            try:
                hf.thread(found.thread).rewind(found.checkpoint, past_effects=arguments.past_effects)
            except EffectsAhead as error:
                refused = error
    is_done = refused is None and not arguments.dry_run
    if arguments.json:
        put_json({**checkpoint_data(found.checkpoint), "done": is_done, "passed": data_of(passed)})
    else:
        for each in passed:
            put(_line(each))
        if is_done:
            past = f", past {counted(len(passed), 'effect')}" if passed else ""
            put(f"{quoted(found.thread)} rewound to {described(found.checkpoint)}{past}")
    if refused is not None:
        say(f"holdfast rewind: {worded(str(refused))}")
        return Exit.CONFLICT
    return Exit.OK


def _line(effect: Ahead) -> str:
    mark = "!" if effect.must_confirm else " "
    what = f"{line(effect.name)} ({effect.effect}, {effect.status.replace('_', ' ')})"
    return f"{mark} step {effect.step}  effect {effect.number}  {what}  {quoted(effect.thread)}"
