"""Stores: where the bytes are kept. `contract` defines what every store must do."""
