"""Trained stitched models, and mm's own inferencers for them."""
