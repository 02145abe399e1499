"""Runs: an agent that goes on where it was, without paying twice or acting twice."""
