"""State ⇄ skeleton and cells: what changed since the last save, and how to read it back.

`change.py` finds what is new, `draft.py` gathers it for one commit, `parts.py` is what a handle remembers of the last
save, `tables.py` keeps long lists of spans small, `loading.py` reads a checkpoint back.
"""
