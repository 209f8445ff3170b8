"""Networks made elastic: stitched to themselves, untouched at the largest budget."""

from .convert import Conversion, convert_model
from .images import ImageBatches, unlabelled_dataset
from .search import Chain, ChainSearch, choose_lengths, images_wanted
from .tuning import ElasticTuningWrapper, tuning_config
