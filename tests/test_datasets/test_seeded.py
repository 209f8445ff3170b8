import pickle
import random
from itertools import islice

import numpy as np
import pytest
import torch
from mmengine.dataset import BaseDataset, InfiniteSampler
from mmengine.registry import DATA_SAMPLERS, DATASETS
from mmengine.runner import Runner

from snnet_mm.datasets import SeededDataset, SeededIndex, ToyScenes
from snnet_mm.datasets import seeded as seeded_module


@DATASETS.register_module()
class Draws(BaseDataset):
    """Samples are what the three generators draw."""

    METAINFO = dict(classes=('a', 'b'))

    def load_data_list(self):
        return [dict(number=i) for i in range(6)]

    def prepare_data(self, idx):
        assert type(idx) is int
        return idx, random.random(), np.random.rand(), torch.rand(()).item()


def build_loader(num_workers=0, seed=0, **sampler):
    sampler = dict(type='SeededSampler', shuffle=True) | sampler
    dataset = dict(type='SeededDataset', of='Draws')
    cfg = dict(dataset=dataset, sampler=sampler, batch_size=2, num_workers=num_workers)
    return Runner.build_dataloader(cfg, seed=seed)


def batches(loader, num=5):
    return [s for batch in islice(loader, num) for s in zip(*batch, strict=True)]


def test_seeded_dataset_sample_depends_on_place_alone():
    expected = batches(build_loader())
    assert len({sample[1:] for sample in expected}) == 10
    torch.manual_seed(3)
    assert batches(build_loader(num_workers=2)) == expected
    other = batches(build_loader(seed=1))
    assert not {s[1:] for s in other} & {s[1:] for s in expected}


@pytest.mark.skipif(
    not hasattr(InfiniteSampler, 'skip'), reason='mmengine 0.10.7 skips no samples'
)
@pytest.mark.parametrize('num_workers', [0, 2])
def test_seeded_sampler_skip_leaves_other_samples(num_workers):
    expected = batches(build_loader())
    loader = build_loader(num_workers)
    loader.sampler.skip(4)
    assert batches(loader, 3) == expected[4:]


def test_seeded_sampler_epochs_differ_and_come_back():
    """Samplers with epochs are started anew by each of them, also after a resume."""
    loader = build_loader(of='DefaultSampler')
    epochs = []
    for epoch in (0, 1, 1):
        loader.sampler.set_epoch(epoch)
        epochs.append(batches(loader))
    assert epochs[1] == epochs[2]
    assert not {s[1:] for s in epochs[0]} & {s[1:] for s in epochs[1]}
    assert not hasattr(loader.sampler, 'skip')


def test_seeded_sampler_ranks_draw_apart(monkeypatch):
    keys = []
    for rank in (0, 1):
        monkeypatch.setattr(seeded_module, 'get_rank', lambda rank=rank: rank)
        keys.append({index.seed for index in islice(build_loader().sampler, 9)})
    assert len(keys[0]) == 9
    assert not keys[0] & keys[1]


def test_seeded_dataset_and_index_are_pickled():
    """The data set inside travels along, and its attributes are seen outside."""
    again = pickle.loads(pickle.dumps(SeededIndex(4, (0, 1, 2))))
    assert (again, again.seed, type(again)) == (4, (0, 1, 2), SeededIndex)
    dataset = SeededDataset('ToyScenes', num_scenes=5)
    for shown in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert (len(shown), shown.num_scenes) == (5, 5)
        assert shown.metainfo == ToyScenes.METAINFO
        assert shown.get_data_info(3)['scene_index'] == 3
    dataset.pipeline = shown.pipeline  # as mm's hooks do which switch it
    assert dataset.dataset.pipeline is shown.dataset.pipeline
    # Least squares asks for samples without a place in the stream.
    assert SeededDataset('Draws')[1][1:] != SeededDataset('Draws')[1][1:]
    with pytest.raises(AttributeError, match='colour'):
        _ = dataset.colour


def test_seeded_sampler_refuses_unseeded_dataset():
    with pytest.raises(ValueError, match="'Draws' .*train_dataloader.dataset"):
        DATA_SAMPLERS.build(dict(type='SeededSampler', dataset=Draws(), seed=0))
