"""Excludes everything imported earlier from garbage collection."""

import gc

gc.freeze()
