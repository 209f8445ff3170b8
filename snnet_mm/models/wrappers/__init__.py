"""Wrappers that change how an mm model is trained."""
