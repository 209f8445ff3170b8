"""A retriever compares images with a data set, which every stitch sees differently."""

from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.runner import Runner
from stock_configs import WIDTH, plain_vits

from snnet_mm.models import set_stitch

FOLDER = Path(find_spec('mmpretrain').origin).parent / '.mim' / 'configs'
STOCK = 'arcface/resnet50-arcface_8xb32_inshop.py'
IDS = 0, 1, 4


@pytest.fixture
def shop(tmp_path):
    """A folder like InShop's: four things, on a few images of noise each."""
    rng, lines = np.random.default_rng(0), []
    for split, number in (('train', 1), ('query', 3), ('gallery', 5)):
        for thing, k in np.ndindex(4, number):
            name = f'img/{thing}/{split}{k}.jpg'
            (file := tmp_path / 'Img' / name).parent.mkdir(parents=True, exist_ok=True)
            patches = rng.integers(0, 255, (2, 2, 3), dtype=np.uint8)
            cv2.imwrite(str(file), patches.repeat(32, 0).repeat(32, 1))
            lines.append(f'{name} id_{thing:08d} {split}')
    (tmp_path / 'Eval').mkdir()
    text = '\n'.join([str(len(lines)), 'image_name item_id evaluation_status', *lines])
    (tmp_path / 'Eval/list_eval_partition.txt').write_text(text)
    return tmp_path


@pytest.fixture
def retriever(shop):
    cfg = Config.fromfile(FOLDER / STOCK)
    encoder = [plain_vits(out_indices=(3,)), dict(type='GlobalAveragePooling')]
    cfg.model.image_encoder = encoder
    cfg.model.head.update(in_channels=WIDTH, num_classes=4)
    cfg.data_preprocessor.num_classes = 4
    for loader in (cfg.test_dataloader, cfg.model.prototype):
        loader.update(batch_size=4, num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(shop)
        for step in loader.dataset.pipeline:
            step.update(dict(Resize=dict(scale=64)).get(step.type, {}))
            step.update({k: 64 for k in step if k == 'crop_size'})
    of_training = 'train_', 'val_', 'optim_wrapper', 'param_', 'custom_hooks'
    cfg = Config({k: v for k, v in cfg.items() if not k.startswith(of_training)})
    cfg.work_dir, cfg.log_level = str(shop / 'work'), 'ERROR'
    return cfg


def test_every_stitch_has_its_own_gallery(retriever):
    def make_runner(test_cfg):
        cfg = deepcopy(retriever)
        cfg.test_cfg = ConfigDict(test_cfg)
        cfg.experiment_name = f'test_{len(test_cfg)}'
        runner = Runner.from_cfg(cfg)
        torch.manual_seed(0)
        for parameter in runner.model.parameters():
            parameter.data.normal_(std=0.3)
        return runner

    settings = dict(stitches=IDS, input_size=(64, 64), lower_is_better=['none'])
    together = make_runner(dict(type='StitchTestLoop', **settings))
    found, wanted = together.test(), {}
    alone = make_runner({})
    for i in IDS:
        set_stitch(alone.model, i)
        alone.model.prototype_inited = False
        wanted |= {f'stitch_{i}/{name}': v for name, v in alone.test().items()}
    assert found == wanted
    assert len({wanted[f'stitch_{i}/retrieval/mAP@10'] for i in IDS}) == len(IDS)
    # What it predicts next is of its active stitch again.
    assert not together.model.prototype_inited
