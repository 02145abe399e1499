"""The verbs of the SQLite and PostgreSQL stores: written once, over a transaction that each of them provides."""
