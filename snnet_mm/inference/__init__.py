"""Trained stitched models, and mm's own inferencers for them."""

from .init_inferencer import draw_prediction, init_inferencer, list_images
from .init_model import init_model
