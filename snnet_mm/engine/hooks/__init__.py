"""Hooks; they only connect."""
