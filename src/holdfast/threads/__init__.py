"""Threads: saving, reading, moving about in and removing checkpoints. Written once for every store."""
