"""The async view of a handle: the same verbs, awaited."""
