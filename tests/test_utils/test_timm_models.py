import pytest

from snnet_mm.utils.timm_models import licence_of


@pytest.mark.parametrize(
    ('checkpoint', 'licence'),
    [
        ('timm://vit_base_patch16_224.mae', 'cc-by-nc-4.0'),
        ('timm://vit_small_patch14_dinov2.lvd142m', 'apache-2.0'),
        ('timm://none', None),
        ('checkpoints/mae_finetuned_vit_base.pth', 'cc-by-nc-4.0'),
        ('checkpoints/my_own.pth', None),
        (None, None),
    ],
)
def test_licence_of_weights(checkpoint, licence):
    pytest.importorskip('timm')
    assert licence_of(checkpoint) == licence
