"""Repeated augmentation for iteration-based training."""

from collections.abc import Iterator, Sized
from itertools import islice

import torch
from mmengine.dist import get_dist_info, sync_random_seed
from mmengine.registry import DATA_SAMPLERS
from torch.utils.data import Sampler

from snnet_mm.utils import check, is_whole


@DATA_SAMPLERS.register_module()
class InfiniteRepeatAugSampler(Sampler):
    """Draws every image several times in a row, each time with another augmentation.

    As DeiT's epoch-based sampler does, it draws the first ``1 / num_repeats`` of every
    new permutation of all images. Different ranks draw the copies of an image where
    possible. In a :class:`SeededSampler`, resuming is exact and reloads no image.

    Args:
        dataset: The data set.
        num_repeats: Number of draws per image.
        seed: Seed, equal on all ranks. Default: the seed of the run.
    """

    def __init__(
        self, dataset: Sized, num_repeats: int = 3, seed: int | None = None
    ) -> None:
        check(is_whole(num_repeats, 1), 'sampler.num_repeats', num_repeats, '1 or more')
        self.num_images, self.num_repeats = len(dataset), num_repeats
        self.rank, self.world_size = get_dist_info()
        self.seed = sync_random_seed() if seed is None else seed
        self.skip(0)

    def skip(self, num_samples: int) -> None:
        """Skip the first ``num_samples`` samples of this rank's stream."""
        self._begin = self.rank + num_samples * self.world_size

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the stream has no epochs."""

    def __iter__(self) -> Iterator[int]:
        yield from islice(self._stream(), self._begin, None, self.world_size)

    def __len__(self) -> int:
        return self.num_images

    def _stream(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(self.seed)
        while True:
            order = torch.randperm(self.num_images, generator=generator)
            drawn = order.repeat_interleave(self.num_repeats)
            yield from drawn[: self.num_images].tolist()
