"""Stitching layers and their least-squares fit."""
