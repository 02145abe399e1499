"""States as skeletons and cells: what changed since the last save, and how to load it.

`parts` is the stored state in memory, `base` the parts of a thread's head, `change` finds what is new, `pieces` does so
in lists of short items and growing strings, `draft` collects it for one commit, `load` reads a checkpoint, `salvage`
reads a damaged one, `hints` lets a caller skip comparisons.
"""
