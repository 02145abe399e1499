"""Benchmarks of Holdfast. Each module with a `main` is a command, for example `python -m bench.engine`."""
