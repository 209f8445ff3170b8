"""Necks between backbones and dense heads."""
