"""Runs: an agent resumes where it was, without paying twice or acting twice."""
