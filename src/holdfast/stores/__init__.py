"""Stores: where bytes live. `contract` says what each of them must do."""
