"""Networks made elastic: stitched to themselves, untouched at the largest budget."""

from .convert import elastic_config, elastic_model
from .image_batches import ImageBatches
from .make_elastic import make_elastic
from .sensitivity import Sensitivities, StepRecord
