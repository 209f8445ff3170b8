import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

TOOL = Path(__file__).parents[2] / 'tools/research/training_free.py'


@pytest.fixture(scope='module')
def tool():
    spec = importlib.util.spec_from_file_location(TOOL.stem, TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_matched_merges_the_most_alike(tool):
    # Tokens 2 and 3 are alike, and so is the cls token 0 to token 1, but it stays.
    keys = torch.tensor([[[1.0, 0], [1, 0], [0, 1], [0.1, 1], [-1, 0.5]]])
    place = tool.matched(keys, 1)
    assert place.tolist() == [[0, 2, 3, 3, 1]]
    x = torch.arange(5.0).view(1, 5, 1)
    sizes = torch.tensor([1.0, 1, 3, 1, 1]).view(1, 5, 1)
    x, sizes = tool.merge(x, sizes, place)
    assert x.flatten().tolist() == [0, 4, 1, (2 * 3 + 3) / 4]
    assert sizes.flatten().tolist() == [1, 1, 1, 4]
    assert tool.matched(keys, 0).tolist() == [[0, 3, 1, 4, 2]]


def test_clusters_of_equal_tokens_reconstruct_them(tool):
    halves = torch.tensor([1.0, 1, 5, 5]).expand(1, 4, 4).reshape(1, 16, 1)
    centres, weights = tool.cluster(halves, (4, 4), (2, 2))
    assert torch.allclose(weights.sum(-1), torch.ones(1, 16))
    assert torch.allclose(centres.flatten(), torch.tensor([1.0, 5, 1, 5]), atol=1e-3)
    assert torch.allclose(weights @ centres, halves, atol=1e-3)


def test_table_compares_with_the_line_of_chains(tool):
    # One class, four equal images: IoU of 80 % at 4 GFLOPs, 60 % at 2, and 75 % at 3.
    def found(settings, flops, hits):
        counts = np.array([[[[h], [100]]] * 4 for h in hits])
        entropies = np.tile([4.0, 3, 2, 1], (len(hits), 1))
        return dict(settings=settings, flops=flops, counts=counts, entropies=entropies)

    chains = found(['stitch 0', 'stitch 1'], np.array([4e9, 2e9]), [80, 60])
    rows = tool.table(dict(chains=chains, tome=found(['4'], [3e9], [75])))
    tome = rows[2]
    assert [tome[k] for k in ('miou', 'of_miou', 'of_flops')] == [75, 0.938, 0.75]
    assert [tome[k] for k in ('against_chains', 'low', 'high')] == [5, 5, 5]
    half = rows[4]  # of the images run both
    assert half['setting'] == 'stitch 1, the network for 50%'
    assert (half['gflops'], half['miou'], half['against_chains']) == (4, 70, -10)
