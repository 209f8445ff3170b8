"""Augmentation that depends only on the position in the stream of samples."""

from collections.abc import Iterator

from mmengine.dataset import BaseDataset
from mmengine.dist import get_rank
from mmengine.registry import DATA_SAMPLERS, DATASETS
from torch.utils.data import Sampler

from snnet_mm.utils import check, seed_everything

# Keeps the seeds of samples and of iterations apart.
SAMPLES = 1


class SeededIndex(int):
    """Index with the seed of its augmentation; an int to batch samplers and workers."""

    def __new__(cls, index: int, seed: tuple[int, ...]) -> 'SeededIndex':
        self = super().__new__(cls, index)
        self.seed = seed
        return self

    def __getnewargs__(self) -> tuple[int, tuple[int, ...]]:
        return int(self), self.seed


@DATASETS.register_module()
class SeededDataset:
    """Wraps a data set of type ``of``, whose augmentation is seeded by each index.

    With :class:`SeededSampler`, a sample is the same after a resume and for any number
    of workers. The seed applies to ``random``, numpy's global generator and torch's CPU
    generator, not to transforms with their own state.
    """

    def __init__(self, of: str | type, **kwargs) -> None:
        self.dataset: BaseDataset = DATASETS.build(dict(type=of, **kwargs))

    def __getitem__(self, index: int) -> object:
        if isinstance(index, SeededIndex):
            seed_everything(*index.seed, devices=False)
        return self.dataset[int(index)]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> object:
        # Do not forward special methods: pickle and torch must not bypass this class.
        if name == 'dataset' or name.startswith('__'):
            raise AttributeError(f'{type(self).__name__} has no attribute {name!r}')
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: object) -> None:
        # Forwarded for mm's hooks, which switch the pipeline of a loader's data set.
        if name == 'dataset':
            super().__setattr__(name, value)
        else:
            setattr(self.dataset, name, value)


@DATA_SAMPLERS.register_module()
class SeededSampler(Sampler):
    """Wraps a sampler of type ``of``, and seeds each index by its position.

    The position is the epoch, if any, the rank, and the number of samples that the rank
    has drawn before. ``seed`` defaults to the seed of the run.
    """

    seeds_samples = True

    def __init__(
        self,
        dataset: SeededDataset,
        of: str | type = 'InfiniteSampler',
        seed: int | None = None,
        **kwargs,
    ) -> None:
        ok, name = isinstance(dataset, SeededDataset), type(dataset).__name__
        expected = "dict(type='SeededDataset', of=...) for a SeededSampler"
        check(ok, 'train_dataloader.dataset', name, expected)
        inside = dict(type=of, dataset=dataset, seed=seed, **kwargs)
        self.sampler = DATA_SAMPLERS.build(inside)
        self._epoch = self._start = 0
        if hasattr(self.sampler, 'skip'):
            self.skip = self._skip

    def __iter__(self) -> Iterator[SeededIndex]:
        key = self.sampler.seed, SAMPLES, get_rank(), self._epoch
        for position, index in enumerate(self.sampler, self._start):
            yield SeededIndex(index, (*key, position))

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> object:
        if name in ('sampler', 'skip') or name.startswith('__'):
            raise AttributeError(f'{type(self).__name__} has no attribute {name!r}')
        return getattr(self.sampler, name)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the seeds and of the wrapped sampler."""
        self._epoch = epoch
        self.sampler.set_epoch(epoch)

    def _skip(self, num_samples: int) -> None:
        self.sampler.skip(num_samples)
        self._start = num_samples
