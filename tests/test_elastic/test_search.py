"""Greedy choice of the blocks of chains."""

from itertools import combinations

import pytest
import torch
from mmengine.registry import MODELS

from snnet_mm.elastic import ChainSearch, choose_lengths
from snnet_mm.models import fit_in_turn, set_stitch

pytest.importorskip('mmseg.models')
DEPTH, SIZE = 5, (32, 32)
VIT = dict(type='PlainViT', img_size=32, patch_size=8)
VIT |= dict(arch=dict(embed_dims=8, depth=DEPTH, num_heads=2))
HEAD = dict(type='FCNHead', in_channels=8, channels=4, num_classes=3, norm_cfg=None)
HEAD |= dict(num_convs=1, in_index=-1)


@pytest.fixture
def model(randomise):
    """Builds a segmentor whose blocks of the given numbers change nothing."""

    def build(identities=(), chains=(), width=8, **backbone):
        backbone = dict(type='ElasticBackbone', anchors=[VIT], chains=chains) | backbone
        head = dict(HEAD, in_channels=width)
        settings = dict(type='EncoderDecoder', backbone=backbone, decode_head=head)
        with MODELS.switch_scope_and_registry('mmseg') as registry:
            built = registry.build(dict(settings, test_cfg=dict(mode='whole')))
        randomise(built.eval())
        with torch.no_grad():
            for i in identities:
                block = built.backbone.anchors[0].blocks[i]
                for part in (block.attn.proj, block.mlp.fc2):
                    part.weight.zero_()
                    part.bias.zero_()
        return built

    return build


@pytest.fixture
def batches():
    return [torch.randn(3, 3, *SIZE), torch.randn(2, 3, *SIZE)]


def search(model, batches, **kwargs):
    return ChainSearch(model, batches, SIZE, **kwargs)


@pytest.mark.parametrize('useless', [(1,), (3, 0)])
def test_blocks_that_change_nothing_go_first(model, batches, useless):
    steps = [*search(model(useless), batches).run()]
    assert [len(chain.kept) for chain in steps] == [4, 3, 2, 1]
    number = len(useless)
    kept = tuple(i for i in range(DEPTH) if i not in useless)
    assert steps[number - 1].kept == kept
    divergences = [chain.divergence for chain in steps]
    assert all(abs(d) < 1e-6 for d in divergences[:number])
    assert min(divergences[number:]) > 10 * max(map(abs, divergences[:number]))


@torch.no_grad()
def test_divergence_is_of_the_predictions_of_the_chain_that_is_fitted(model, batches):
    built = model(out_indices=(2, 4))
    finder = search(built, batches)
    chain = finder.chain((0, 4))
    other = model(chains=[(0, 4)], out_indices=(2, 4))
    weights = {k: v for k, v in built.state_dict().items() if 'extra' not in k}
    other.load_state_dict(weights, strict=False)
    fit_in_turn(other.backbone, batches)
    divergences = []
    for images in batches:
        logits = [(set_stitch(other, i), other._forward(images))[1] for i in (0, 1)]
        whole, log = logits[0].softmax(1), [x.log_softmax(1) for x in logits]
        divergences.append((whole * (log[0] - log[1])).sum(1).mean().item())
    assert chain.divergence == pytest.approx(sum(divergences) / 2, rel=1e-3)
    assert finder.chain(range(1, DEPTH)).divergence > 0
    assert [float(finder.predictions.distance(t, t)) for t in finder.targets] == [0, 0]
    block, layer = 17 * 12 * 64 + 2 * 17**2 * 8, 17 * 64
    saved = finder.total - finder.flops(chain)
    # Blocks 1, 2 and 3: as one of the others is read, two gaps; counted as three maps.
    assert saved == 3 * (block - layer)


def test_a_search_goes_on_from_a_chain(model, batches):
    finder = search(model(), batches)
    steps = [*finder.run()]
    begin = finder.chain(steps[1].kept)
    assert begin.divergence == pytest.approx(steps[1].divergence, rel=1e-5)
    for chain, wanted in zip(finder.run(begin=begin), steps[2:], strict=True):
        assert chain.kept == wanted.kept
        assert chain.divergence == pytest.approx(wanted.divergence, rel=1e-4)
    assert len([*finder.run(fewest=3)]) == 2
    share = finder.flops(steps[1]) / finder.total
    assert len([*finder.run(least_flops=share * finder.total)]) == 2
    assert not [*finder.run(begin=finder.chain((0,)))]


@torch.no_grad()
@pytest.mark.parametrize('read', [(4,), (1, 4)])
def test_errors_that_are_known_from_earlier_steps_are_those_of_the_chain(
    model, batches, read
):
    finder = search(model(out_indices=read), batches)
    for chain in finder.run(fewest=2):
        fresh = search(finder.model, batches)
        again = fresh.chain(chain.kept)
        for block in chain.kept:
            wanted = fresh.local_error(again, block)
            assert finder.local_error(chain, block) == pytest.approx(wanted, rel=1e-4)


def test_a_long_shortlist_finds_the_best_removal_and_a_short_one_that_at_the_gap(
    model, batches
):
    finder = search(model(), batches, shortlist=DEPTH)
    first, second = finder.run(fewest=3)
    for chain, whole in ((first, range(DEPTH)), (second, first.kept)):
        every = {k: finder.chain(k) for k in combinations(whole, len(chain.kept))}
        assert chain.kept == min(every, key=lambda k: every[k].divergence)
    short = search(finder.model, batches, shortlist=1)
    first = next(short.run())
    errors = {b: short.local_error(short.whole, b) for b in range(DEPTH)}
    assert {*range(DEPTH)} - {*first.kept} == {min(errors, key=errors.get)}


def test_lengths_are_spread_evenly_below_the_network():
    flops = {n: n / 12 for n in range(1, 12)}
    assert choose_lengths(flops, 1, 5) == [10, 8, 7, 5, 3]
    assert choose_lengths(flops, 1, 1) == [6]
    assert choose_lengths(flops, 1, 100) == [*range(10, 2, -1)]
    # A head that costs ten times as much as the blocks does not leave one length.
    heavy = {n: 10 + n / 12 for n in range(1, 12)}
    assert choose_lengths(heavy, 11, 2) == [10, 1]
    assert choose_lengths({3: 0.9}, 1, 5) == [3]
