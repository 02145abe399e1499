"""Threads: save, load, list, rewind, fork and remove checkpoints, in the same way on every store."""
