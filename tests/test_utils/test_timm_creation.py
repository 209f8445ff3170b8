import pytest

from snnet_mm.utils.timm_models import create_timm_model


@pytest.mark.parametrize(
    ('name', 'arguments', 'found'),
    [
        ('convmixer_768_32.in1k', dict(dim=8, depth=2), lambda net: net.stem[0]),
        ('mixer_s32_224', dict(embed_dim=8, num_blocks=1), lambda n: n.stem.proj),
        ('focalnet_tiny_srf', dict(embed_dim=8), lambda net: net.stem.proj),
        ('poolformer_s12', dict(dims=(8, 8, 8, 8)), lambda net: net.stem.conv),
    ],
)
def test_create_timm_model_with_arguments_that_timm_sets(name, arguments, found):
    pytest.importorskip('timm')
    net = create_timm_model(name, num_classes=5, **arguments)
    assert found(net).out_channels == 8
    assert net.num_classes == 5
    assert net.pretrained_cfg['architecture'] == name.partition('.')[0]
    assert '.' not in name or net.pretrained_cfg['tag'] == 'in1k'
    with pytest.raises(ValueError, match=f'{name} cannot be built.*dimm'):
        create_timm_model(name, dimm=3, **arguments)
