"""Stitched backbones and what runs them."""
