"""Stitched backbones, their plug-ins and the walk along routes."""
