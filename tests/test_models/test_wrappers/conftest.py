import pytest
import torch
from mmengine.model import ImgDataPreprocessor
from small import ToyClassifier


@pytest.fixture
def build_classifier(build_snnet, randomise):
    """Builds a small stitched classifier whose training is deterministic."""

    def build(**kwargs):
        preprocessor = ImgDataPreprocessor([100, 110, 120], [50, 51, 52])
        model = ToyClassifier(build_snnet(**kwargs), data_preprocessor=preprocessor)
        return randomise(model)

    return build


@pytest.fixture
def batch():
    """Images as mm loads them, and their labels."""
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    return dict(inputs=list(images), data_samples=torch.tensor([0, 3, 1, 4]))
