"""A run that the demo leaves for you: its process died while it posted a letter, and you decide what happened.

    python -m holdfast.demo.your_turn FOLDER

posts the first letter in FOLDER and dies. `holdfast resume holdfast.demo.your_turn:handlers your-turn` in that folder
continues the run after your decision.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

import holdfast
from holdfast import Run

THREAD: Final = "your-turn"
LETTERS: Final = "letters.csv"
APP: Final = "holdfast.demo.your_turn:handlers"
HANDLER: Final = "letters"
START: Final = {
    "to": ["Northern Mill", "Paper Union"],
    "messages": [{"role": "user", "content": "Thank Northern Mill and Paper Union for the delivery."}],
}


class PostOffice:
    """The folder with the letters, and whether the process dies after it has posted one."""

    folder = Path()
    kills = False


@holdfast.tool(effect="irreversible", in_doubt="ask")
def post_letter(to: str, text: str) -> dict[str, str]:
    """Post a letter. There is no way to check whether it was posted, so in doubt a person decides."""
    with (PostOffice.folder / LETTERS).open("a", encoding="utf-8") as file:
        file.write(f"{to},{text}\n")
    if PostOffice.kills:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"posted": to}


def write_letters(run: Run) -> None:
    state = run.state
    for step in run.steps():
        letter = {"to": state["to"][step - 1], "text": "Thank you for the delivery."}
        key = f"letter {step}"
        call = {"id": key, "name": "post_letter", "args": letter}
        state["messages"].append({"role": "assistant", "content": f"Letter {step}.", "tool_calls": [call]})
        posted = run.tool(post_letter, letter, key=key)
        state["messages"].append({"role": "tool", "id": key, "content": posted})
        if step == len(state["to"]):
            run.finish({"letters": step})


handlers: Final = {HANDLER: write_letters}


def main(folder: str) -> None:
    PostOffice.folder, PostOffice.kills = Path(folder), True
    with holdfast.open(PostOffice.folder / "agent.db") as hf:
        hf.submit(HANDLER, THREAD, start=START)
        hf.worker(handlers).run(until_idle=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
