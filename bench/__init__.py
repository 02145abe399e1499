"""What the engine promises in numbers, measured: `python -m bench.engine`."""
