"""Runs: agents that survive the death of their process."""
