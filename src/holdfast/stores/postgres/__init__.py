"""The PostgreSQL store: one database for a fleet of workers. Needs the extra `postgres`."""

from holdfast.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
