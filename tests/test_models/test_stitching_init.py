import pytest
import torch
from fits import maps_by_hand, maps_of
from staged_anchors import disturb, resnet, swin

from snnet_mm.models import SNNetv1
from snnet_mm.models.stitching_init import fit_stitching_layers
from snnet_mm.models.ziplab_checkpoint import convert_ziplab

DEPTHS = 3, 7


def images(n=12):
    return torch.randn(n, 3, 32, 32)


@pytest.mark.parametrize('layer', ['StitchingLayer', 'LoRAStitchingLayer'])
@pytest.mark.parametrize('num_registers', [0, 2])
def test_layers_become_the_least_squares_maps(build_snnet, layer, num_registers):
    cfg = dict(type=layer, **(dict(rank=2) if 'LoRA' in layer else {}))
    net = build_snnet(
        DEPTHS,
        stitching_layer=cfg,
        anchor=dict(num_registers=num_registers, rel_pos_bias=True),
    )
    batch = images()
    expected = maps_by_hand(net, batch)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    assert fit_stitching_layers(net, [batch]) == 12
    torch.testing.assert_close(maps_of(net), expected, rtol=1e-6, atol=1e-6)
    assert net.stitching_initialized
    for key, value in net.state_dict().items():
        fitted = key.startswith('stitching_') and 'lora' not in key
        assert value.equal(before[key]) != fitted, key


@pytest.fixture
def networks(build_snnet, build_vit):
    plain = [build_vit(width, 4) for width in (8, 12, 16)]
    return dict(
        chain=build_snnet((2, 3, 7), (8, 12, 16)),
        windows=SNNetv1(plain, out='end', direction='SF'),
        stages=disturb(SNNetv1([resnet(), swin(12, (2, 2, 3, 2))], out_indices=(1, 8))),
    )


@pytest.mark.parametrize('sizes', [(12,), (5, 5, 2)])
@pytest.mark.parametrize('name', ['chain', 'windows', 'stages'])
def test_layers_of_other_spaces_become_the_least_squares_maps(networks, name, sizes):
    net, batch = networks[name].eval(), torch.randn(12, 3, 64, 64)
    expected = maps_by_hand(net, batch)
    assert fit_stitching_layers(net, iter(batch.split(sizes))) == 12
    torch.testing.assert_close(maps_of(net), expected, rtol=1e-4, atol=1e-4)


def test_an_anchor_without_layers_is_not_fitted_to(build_snnet):
    # Stitch 14 changes between the two slowest anchors.
    net = build_snnet((3, 4, 5), (8, 12, 16), out='end', stitch_ids=[14])
    batch = images()
    net.anchors[0].embed = None
    fit_stitching_layers(net, [batch])
    expected = maps_by_hand(net, batch)
    assert set(maps_of(net)) == {'2to1_0', '1to2_3'}
    torch.testing.assert_close(maps_of(net), expected, rtol=1e-5, atol=1e-5)


def test_maps_of_the_authors(golden):
    net = golden.build()
    net.load_state_dict(convert_ziplab(golden.part('sd.')))
    net.stitching_initialized.fill_(False)
    assert fit_stitching_layers(net, [golden.tensors['ls.x']]) == 8
    theirs = convert_ziplab(golden.part('ls.'))
    del theirs['stitching_initialized'], theirs['x']
    assert len(theirs) == 2 * (12 + 11)
    for key, expected in theirs.items():
        found = net.get_parameter(key)
        assert (found - expected).norm() < 1e-5 * expected.norm(), key
    assert net.stitching_initialized


@pytest.mark.parametrize('training', [True, False])
def test_anchors_run_in_eval_mode_and_the_mode_is_restored(build_snnet, training):
    net = build_snnet(DEPTHS, anchor=dict(drop_path_rate=0.9)).train(training)
    batch = images()
    fit_stitching_layers(net, [batch])
    assert {m.training for m in net.modules()} == {training}
    expected = maps_by_hand(net.eval(), batch)
    torch.testing.assert_close(maps_of(net), expected, rtol=1e-6, atol=1e-6)


def test_between_equal_anchors_every_stitch_is_the_anchor(build_snnet):
    # Least squares finds the identity.
    net = build_snnet(
        (3, 3), widths=(8, 8), stitching_layer=dict(type='StitchingLayer')
    )
    net.anchors[1].load_state_dict(net.anchors[0].state_dict())
    fit_stitching_layers(net, [images()])
    net.eval()
    batch = images(2)
    with torch.no_grad():
        (expected,) = net(batch)
        for stitch in net.space:
            net.set_stitch(stitch.id)
            torch.testing.assert_close(net(batch)[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize('training', [True, False])
def test_activations_that_are_not_finite_are_refused(build_snnet, training):
    net = build_snnet(DEPTHS).train(training)
    before = {n: w.clone() for n, (w, _) in maps_of(net).items()}
    spoilt = images()
    spoilt[7, 1, 5, 5] = float('nan')
    with pytest.raises(ValueError, match='finite activations'):
        fit_stitching_layers(net, [spoilt[:6], spoilt[6:]])
    assert all(w.equal(before[n]) for n, (w, _) in maps_of(net).items())
    assert not net.stitching_initialized
    assert net.training == training
