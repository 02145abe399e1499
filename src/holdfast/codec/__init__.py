"""Values to bytes and back: an explicit set of types, faithful or refused."""
