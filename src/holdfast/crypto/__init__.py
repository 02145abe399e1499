"""Encryption of all that a store is given: between the layers above and any store."""
