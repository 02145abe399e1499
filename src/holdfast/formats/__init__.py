"""Formats of files that users read: one line format."""
