"""All stitches in one pass against one at a time: the backbone and the whole loop."""

from collections.abc import Callable

import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from torch import nn

from snnet_mm.evaluation.one_pass import prepare
from snnet_mm.models import set_stitch
from snnet_mm.stitching import count_blocks, visiting_order

from ._common import CAMVID, CONFIGS, S_L, devices, elapsed_ms

Run = Callable[[], object]
# Name, config, images per batch, size, rounds.
CASES = (
    ('CamVid pair, 176x240', CAMVID, 2, (176, 240), 3),
    ('DeiT3 S/L, 150 classes, 256x256', S_L, 1, (256, 256), 1),
)


def run() -> dict:
    return dict(
        comparison=[
            row
            for device in devices()
            for case in CASES
            for row in measure(device, *case)
        ]
    )


def measure(
    device: str,
    name: str,
    config: str,
    batch_size: int,
    size: tuple[int, int],
    rounds: int,
) -> list[dict]:
    cfg = Config.fromfile(CONFIGS / config)
    init_default_scope(cfg.default_scope)
    cfg.model.test_cfg = dict(mode='whole')
    model = MODELS.build(cfg.model).to(device).eval()
    backbone, num_classes = model.backbone, model.decode_head.num_classes
    batch = make_batch(batch_size, size, num_classes)
    images = model.data_preprocessor(batch)['inputs']
    metric = Evaluator(dict(type='IoUMetric'))
    metric.dataset_meta = dict(classes=[str(i) for i in range(num_classes)])

    def load_and_evaluate() -> Run:
        predict = prepare(model, batch)
        return lambda: metric.process(data_samples=predict(), data_batch=batch)

    blocks = [count_blocks(backbone.space, shared) for shared in (False, True)]
    return [
        dict(model=name, device=device, blocks_per_image=blocks, part=part)
        | compare(model, load, rounds)
        for part, load in (
            ('backbone', lambda: lambda: backbone(images)),
            ('loop', load_and_evaluate),
        )
    ]


def compare(model: nn.Module, load: Callable[[], Run], rounds: int) -> dict[str, float]:
    """Seconds of both ways for all stitches, timed in turn."""
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

    times = {one_at_a_time: [], one_pass: []}
    with torch.no_grad():
        load()()
        for _ in range(rounds):
            for way, seconds in times.items():
                seconds.append(elapsed_ms(way) / 1000)
    alone, together = (sorted(t)[len(t) // 2] for t in times.values())
    return dict(one_at_a_time_s=alone, one_pass_s=together, ratio=alone / together)


def make_batch(number: int, size: tuple[int, int], num_classes: int) -> dict:
    samples = []
    for _ in range(number):
        truth = PixelData(data=torch.randint(0, num_classes, (1, *size)))
        info = dict(ori_shape=size, img_shape=size, pad_shape=size)
        samples.append(SegDataSample(gt_sem_seg=truth, metainfo=info))
    inputs = list(torch.randint(0, 256, (number, 3, *size), dtype=torch.uint8))
    return dict(inputs=inputs, data_samples=samples)
