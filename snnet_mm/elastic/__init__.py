"""Networks made elastic: stitched to themselves, untouched at the largest budget."""

from .convert import Conversion, convert_model
from .images import ImageBatches
from .search import Chain, ChainSearch, choose_lengths
