import cv2
import numpy as np
import pytest
from mmengine.config import ConfigDict
from mmengine.runner import Runner
from toy import runner_of

from snnet_mm.evaluation import BrokenImagesHook, evaluate_whole_model
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.stitching import StitchTable
from snnet_mm.utils import digest

LOAD = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]
BROKEN = dict(empty=b'', cut=b'\x89PNG\r\n')


@pytest.fixture
def cfg(toy_cfg, tmp_path):
    """Images 0 to 3, which can be read, in files."""
    rng = np.random.default_rng(0)
    for i in range(4):
        for kind, most, shape in (('images', 256, (64, 64, 3)), ('maps', 6, (64, 64))):
            (tmp_path / kind).mkdir(exist_ok=True)
            pixels = rng.integers(0, most, shape, np.uint8)
            cv2.imwrite(str(tmp_path / kind / f'{i}.png'), pixels)
    toy_cfg.test_dataloader.dataset = ConfigDict(
        type='BaseSegDataset',
        test_mode=True,
        img_suffix='.png',
        data_prefix=dict(
            img_path=f'{tmp_path}/images', seg_map_path=f'{tmp_path}/maps'
        ),
        metainfo=dict(classes=tuple('abcdef')),
        pipeline=[*LOAD, dict(type='PackSegInputs')],
    )
    toy_cfg.test_cfg.stitches = [0, 4]
    return toy_cfg


@pytest.mark.parametrize('workers', [0, 1])
@pytest.mark.parametrize('damage', BROKEN)
def test_a_broken_image_is_named(cfg, tmp_path, damage, workers):
    (tmp_path / 'images/2.png').write_bytes(BROKEN[damage])
    cfg.test_dataloader.update(num_workers=workers, persistent_workers=False)
    runner = runner_of(cfg, [0, 4])
    runner.register_hook(BrokenImagesHook())
    words = (
        rf'^{tmp_path}/images/2.png cannot be loaded: \w.*test_dataloader.dataset\)$'
    )
    with pytest.raises(ValueError, match=words) as error:
        runner.test()
    assert '\n' not in str(error.value)


def test_images_that_are_dropped_do_not_count(cfg, tmp_path):
    cfg.test_dataloader.update(batch_size=3, drop_last=True)
    for loop, name in (
        ('StitchTestLoop', 'stitches.json'),
        ('TestLoop', 'results.json'),
    ):
        cfg.test_cfg = ConfigDict(type=loop)
        runner = Runner.from_cfg(cfg)
        if loop == 'TestLoop':
            evaluate_whole_model(runner)
        else:
            runner.test()
        (path,) = tmp_path.glob(f'*/{name}')
        table = StitchTable.read(path)
        assert table.shared('num_images') == 3
        images = ImageScores.read(path.with_name('per_image.npz'), table)
        assert images.numerators.shape[1] == 3
        assert images.names == digest(
            [f'{tmp_path.name}/images/{i}.png' for i in range(3)]
        )
