"""Encryption: a layer around any store that encrypts everything it stores."""
