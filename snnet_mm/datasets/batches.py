"""Batches of a subset of the images, and predictions for a batch."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from mmengine.dataset import BaseDataset, DefaultSampler
from mmengine.dist import get_rank, get_world_size
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.structures import BaseDataElement
from torch import nn
from torch.utils.data import DataLoader

from snnet_mm.utils import check, shared_seed

DataSamples = Sequence[BaseDataElement]


def prepare(model: nn.Module, data_batch: dict) -> Callable[[], DataSamples]:
    """Preprocess a batch once; return a function that predicts it.

    Every call uses the active stitch and writes into new data samples.
    """
    model = model.module if is_model_wrapper(model) else model
    if isinstance(model, BaseTTAModel):
        # Its test_step preprocesses the augmented copies of the batch one by one.
        return lambda: model.test_step(data_batch)
    data = model.data_preprocessor(data_batch, False)

    def predict() -> DataSamples:
        # mm writes predictions into its input samples.
        samples = [sample.new() for sample in data['data_samples']]
        return model._run_forward(dict(data, data_samples=samples), mode='predict')

    return predict


def spread(dataloader: DataLoader, num_images: int) -> DataLoader:
    """Return the same data loader over fewer images, evenly spaced in its data."""
    dataset, key = dataloader.dataset, 'test_dataloader.dataset'
    # Wrappers such as mmengine's ConcatDataset support no subsets.
    expected = 'a data set without a wrapper, to limit its images (config key: '
    expected += 'test_cfg.limit; option: --limit)'
    check(isinstance(dataset, BaseDataset), key, type(dataset).__name__, expected)
    total, number = len(dataset), min(num_images, len(dataset))
    part = dataset.get_subset([i * total // number for i in range(number)])
    names = 'batch_size', 'num_workers', 'collate_fn', 'worker_init_fn'
    settings = {name: getattr(dataloader, name) for name in names}
    settings['batch_size'] = dataloader.batch_size or 1  # None with a batch sampler
    return DataLoader(part, sampler=DefaultSampler(part, shuffle=False), **settings)


def batches_in_order(loader: DataLoader) -> Iterator[tuple[range, dict]]:
    """Yield batches of all images, in the order of the data set, with their indices."""
    dataset, size = loader.dataset, loader.batch_size or 1  # None with a batch sampler
    for first in range(0, len(dataset), size):
        indices = range(first, min(first + size, len(dataset)))
        yield indices, loader.collate_fn([dataset[i] for i in indices])


def random_batches(loader: DataLoader, seed: int, num_images: int) -> Iterator[dict]:
    """Yield batches of this rank's share of ``num_images`` random images."""
    dataset, rng = loader.dataset, np.random.default_rng(shared_seed(seed))
    chosen = rng.permutation(len(dataset))[:num_images]
    own = chosen[get_rank() :: get_world_size()].tolist()
    # A batch sampler groups images to avoid padding: yield single images instead.
    size = loader.batch_size or 1
    for i in range(0, len(own), size):
        yield loader.collate_fn([dataset[j] for j in own[i : i + size]])
