"""Guards: halt a run before the call that would be too many."""
