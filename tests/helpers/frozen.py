"""Keeps what was imported before out of all collections of garbage."""

import gc

gc.freeze()
