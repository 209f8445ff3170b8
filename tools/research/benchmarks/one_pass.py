"""All stitches in one pass against one at a time: the backbone and the whole loop."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

import torch
from mmengine.evaluator import Evaluator
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from torch import nn

from snnet_mm.datasets import prepare
from snnet_mm.models import set_stitch
from snnet_mm.stitching import Position, Stitch, visiting_order

from ._common import build, devices, in_turn, read_config

CAMVID = 'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py'
S_L = 'setr/setr-naive_snnetv2-deit3-s-l_8xb2-160k_ade20k-512x512.py'
# Name, config, images per batch, size, rounds.
CASES = (
    ('CamVid pair, 176x240', CAMVID, 2, (176, 240), 3),
    ('DeiT3 S/L, 150 classes, 256x256', S_L, 1, (256, 256), 1),
)


def run() -> dict:
    rows = (measure(device, *case) for device in devices() for case in CASES)
    return dict(comparison=list(chain.from_iterable(rows)))


@torch.no_grad()
def measure(
    device: str, name: str, config: str, number: int, size: tuple[int, int], rounds: int
) -> list[dict]:
    """Return a row for the backbone alone, and one with head and metric."""
    cfg = read_config(config)
    cfg.model.test_cfg = dict(mode='whole')
    model = build(cfg, device)
    num_classes = model.decode_head.num_classes
    batch = make_batch(number, size, num_classes)
    images = model.data_preprocessor(batch)['inputs']
    metric = Evaluator(dict(type='IoUMetric'))
    metric.dataset_meta = dict(classes=[str(i) for i in range(num_classes)])

    def load_and_evaluate() -> Callable[[], None]:
        predict = prepare(model, batch)
        return lambda: metric.process(data_samples=predict(), data_batch=batch)

    space = model.backbone.space
    blocks = [sum(blocks_run([stitch]) for stitch in space), blocks_run(space)]
    about = dict(model=name, device=device, blocks_per_image=blocks)
    loads = dict(backbone=lambda: partial(model.backbone, images))
    loads['loop'] = load_and_evaluate
    return [
        about | dict(part=part) | compare(model, load, rounds)
        for part, load in loads.items()
    ]


def compare(model: nn.Module, load: Callable, rounds: int) -> dict[str, float]:
    """Return the seconds of both ways for all stitches, timed alternately."""
    space = model.backbone.space

    def one_at_a_time() -> None:
        for stitch in space:
            set_stitch(model, stitch.id)
            load()()

    def one_pass() -> None:
        run = load()
        with model.backbone.sharing_prefixes():
            for stitch in visiting_order(space):
                set_stitch(model, stitch.id)
                run()

    ms = in_turn(dict(one_at_a_time=one_at_a_time, one_pass=one_pass), rounds)
    seconds = {f'{way}_s': time / 1e3 for way, time in ms.items()}
    return seconds | dict(ratio=ms['one_at_a_time'] / ms['one_pass'])


def make_batch(number: int, size: tuple[int, int], num_classes: int) -> dict:
    info = dict.fromkeys(('ori_shape', 'img_shape', 'pad_shape'), size)
    truths = torch.randint(0, num_classes, (number, 1, *size))
    samples = [
        SegDataSample(gt_sem_seg=PixelData(data=truth), metainfo=info)
        for truth in truths
    ]
    inputs = list(torch.randint(0, 256, (number, 3, *size), dtype=torch.uint8))
    return dict(inputs=inputs, data_samples=samples)


def blocks_run(stitches: Iterable[Stitch]) -> int:
    """Return how many blocks one pass with these stitches runs per image."""
    routes = [stitch.steps for stitch in stitches]
    prefixes = {route[:i] for route in routes for i in range(1, len(route) + 1)}
    blocks = [p for p in prefixes if isinstance(p[-1], Position) and p[-1].block >= 0]
    return len(blocks)
