"""What a model's stitches cost."""

from .costs import cost_table
from .parts import preprocessed_size

__all__ = ['cost_table', 'preprocessed_size']
