"""The parts of ``benchmark.py``: functions that return figures as plain data."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import mean, median

import numpy as np
import timm
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from torch import Tensor, nn

from snnet_mm.anchors import BranchView, PlainViT
from snnet_mm.costs import cost_table
from snnet_mm.datasets import prepare
from snnet_mm.models import ElasticBackbone, set_stitch
from snnet_mm.stitching import Position, Stitch, visiting_order, write_plan
from snnet_mm.training import ResourceConstrainedSampler

CONFIGS = Path(__file__).parents[2] / 'configs'
SETR = 'setr/setr-naive_{}_8xb2-160k_ade20k-512x512.py'
CAMVID = 'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py'
DEVICES = ['cpu', *(['cuda'] if torch.cuda.is_available() else [])]


def elapsed_ms(run: Callable[[], object]) -> float:
    """Return the milliseconds of a call, including pending GPU work."""
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000


def in_turn(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return median milliseconds of several calls, each timed once per round.

    Other load on the machine thus affects all calls equally. A first round warms up.
    """
    times = [{k: elapsed_ms(run) for k, run in runs.items()} for _ in range(rounds + 1)]
    return {key: median(row[key] for row in times[1:]) for key in runs}


def build(cfg: Config, device: str) -> nn.Module:
    """Build the model of a config with random weights, in eval mode."""
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    return MODELS.build(cfg.model).to(device).eval()


def make_batch(number: int, size: tuple[int, int], num_classes: int) -> dict:
    info = dict.fromkeys(('ori_shape', 'img_shape', 'pad_shape'), size)
    truths = torch.randint(0, num_classes, (number, 1, *size))
    samples = [
        SegDataSample(gt_sem_seg=PixelData(data=truth), metainfo=info)
        for truth in truths
    ]
    inputs = list(torch.randint(0, 256, (number, 3, *size), dtype=torch.uint8))
    return dict(inputs=inputs, data_samples=samples)


def forward() -> dict:
    """Forward pass of single anchors against timm's networks.

    timm's networks have no relative position bias; ours are timed without and with it.
    """
    anchors = dict(small='deit3_small_patch16_224', large='deit3_large_patch16_224')
    return dict(
        anchors=[time_anchor(*a, device) for device in DEVICES for a in anchors.items()]
    )


@torch.inference_mode()
def time_anchor(arch: str, name: str, device: str, size: int = 512) -> dict:
    torch.manual_seed(0)
    images = torch.randn(1, 3, size, size, device=device)
    ours = partial(PlainViT, arch=arch, img_size=size, out='end', final_norm=True)
    nets = dict(
        timm=timm.create_model(name, img_size=size, num_classes=0),
        ours=ours(),
        ours_with_bias=ours(rel_pos_bias=True),
    )
    nets = {key: net.to(device).eval() for key, net in nets.items()}

    def tokens(key: str) -> Tensor:
        # On a GPU in half precision, as models run there.
        with torch.autocast(device, torch.float16, enabled=device == 'cuda'):
            if key == 'timm':
                return nets[key].forward_features(images)
            return nets[key](images).tokens

    times = in_turn({key: partial(tokens, key) for key in nets}, rounds=9)
    return dict(
        anchor=name,
        device=device,
        **{f'{key}_ms': ms for key, ms in times.items()},
        of_timm=times['ours'] / times['timm'],
        with_bias_of_timm=times['ours_with_bias'] / times['timm'],
    )


def widths() -> dict:
    """Chains of about half and a quarter of the FLOPs against their networks.

    Every branch of a chain runs an equal share of its heads or neurons.
    """
    networks = (
        ('TimmAnchor', 'vit_small_patch16_dinov3', 256),
        ('TimmAnchor', 'vit_small_plus_patch16_dinov3', 256),
        ('TimmAnchor', 'eva02_small_patch14_224', 224),
        ('TimmStageAnchor', 'swin_tiny_patch4_window7_224', 224),
        ('TimmStageAnchor', 'convnext_tiny', 224),
        ('TimmStageAnchor', 'convnextv2_tiny', 224),
    )
    return dict(
        networks=[time_widths(*net, device) for device in DEVICES for net in networks]
    )


@torch.inference_mode()
def time_widths(kind: str, model: str, size: int, device: str) -> list[dict]:
    """Return a row for the network, and one for every chain."""
    anchor = MODELS.build(dict(type=kind, model=model, img_size=size))
    view = BranchView(anchor)
    plans = {
        write_plan(plan, view.blocks)
        for share in np.linspace(0, 1, 49)
        if (plan := _narrowed(view.widths, share)) != view.widths
    }
    net = ElasticBackbone([anchor], sorted(plans))
    table, space = cost_table(net, (size, size)), net.space
    shares = {i: table[i].flops / table[0].flops for i in table}
    wanted = [min(shares, key=lambda i: abs(shares[i] - s)) for s in (1, 1 / 2, 1 / 4)]
    chains = [space.describe(space[i]) for i in wanted[1:]]
    net = ElasticBackbone([anchor], chains)
    net, images = net.to(device).eval(), torch.randn(1, 3, size, size, device=device)

    def run(stitch: int) -> None:
        net.set_stitch(stitch)
        net(images)

    times = in_turn({i: partial(run, i) for i in range(3)}, rounds=15)
    return [
        dict(
            model=model,
            device=device,
            gflops=table[i].flops / 1e9,
            of_flops=shares[i],
            ms=ms,
            of_ms=ms / times[0],
        )
        for i, ms in zip(wanted, times.values(), strict=True)
    ]


def _narrowed(widths: tuple[int, ...], share: float) -> tuple[int, ...]:
    return tuple(max(1, round(share * width)) for width in widths)


def one_pass() -> dict:
    """All stitches in one pass against one at a time: the backbone and the whole loop.

    The loop includes head and metric.
    """
    pair = Config.fromfile(CONFIGS / CAMVID), 2, (176, 240), 3
    large = Config.fromfile(CONFIGS / SETR.format('snnetv2-deit3-s-l'))
    cases = {'CamVid pair': pair, 'DeiT3 S/L': (large, 1, (256, 256), 1)}
    return dict(
        comparison=[
            dict(model=name, device=device) | row
            for device in DEVICES
            for name, case in cases.items()
            for row in time_one_pass(device, *case)
        ]
    )


@torch.no_grad()
def time_one_pass(
    device: str, cfg: Config, number: int, size: tuple[int, int], rounds: int
) -> list[dict]:
    """Return a row for the backbone alone, and one with head and metric."""
    cfg.model.test_cfg = dict(mode='whole')
    model = build(cfg, device)
    num_classes, space = model.decode_head.num_classes, model.backbone.space
    batch = make_batch(number, size, num_classes)
    images = model.data_preprocessor(batch)['inputs']
    metric = Evaluator(dict(type='IoUMetric'))
    metric.dataset_meta = dict(classes=[str(i) for i in range(num_classes)])

    def load_and_evaluate() -> Callable[[], None]:
        predict = prepare(model, batch)
        return lambda: metric.process(data_samples=predict(), data_batch=batch)

    def one_at_a_time(load: Callable) -> None:
        for stitch in space:
            set_stitch(model, stitch.id)
            load()()

    def all_in_one(load: Callable) -> None:
        run = load()
        with model.backbone.sharing_prefixes():
            for stitch in visiting_order(space):
                set_stitch(model, stitch.id)
                run()

    loads = dict(backbone=lambda: partial(model.backbone, images))
    blocks = [sum(blocks_run([stitch]) for stitch in space), blocks_run(space)]
    rows = []
    for part, load in (loads | dict(loop=load_and_evaluate)).items():
        ways = dict(one_at_a_time=one_at_a_time, one_pass=all_in_one)
        ms = in_turn({way: partial(run, load) for way, run in ways.items()}, rounds)
        row = dict(part=part, ratio=ms['one_at_a_time'] / ms['one_pass'])
        row |= {f'{way}_s': time / 1e3 for way, time in ms.items()}
        rows.append(row | dict(blocks_per_image=blocks))
    return rows


def blocks_run(stitches: Iterable[Stitch]) -> int:
    """Return how many blocks one pass with these stitches runs per image."""
    routes = [stitch.steps for stitch in stitches]
    prefixes = {route[:i] for route in routes for i in range(1, len(route) + 1)}
    blocks = [p for p in prefixes if isinstance(p[-1], Position) and p[-1].block >= 0]
    return len(blocks)


def training() -> dict:
    """A training step of DeiT3 S/L under ROS against one of DeiT3-L alone.

    Every round times a step of the slow anchor alone, then of one stitch per ROS group.
    The mean over groups is the time of an average iteration of the stitched training.
    """
    return {device: time_training(device) for device in DEVICES}


def time_training(device: str, rounds: int = 7) -> dict:
    _, step_alone = load_step('deit3-l', device)
    model, step = load_step('snnetv2-deit3-s-l', device)
    table = cost_table(model.backbone, (512, 512))
    groups = ResourceConstrainedSampler(table, step=10e9, seed=0).groups
    costs = table.column('flops')
    slow, by_group = [], [[] for _ in groups]
    for round_ in range(rounds + 1):
        slow.append(elapsed_ms(step_alone))
        for group, times in zip(groups, by_group, strict=True):
            stitch_id = group[round_ * len(group) // (rounds + 1)]
            set_stitch(model, stitch_id)
            times.append(elapsed_ms(step))
    # The first round warms up.
    slow_ms = median(slow[1:])
    group_ms = [median(times[1:]) for times in by_group]
    group_flops = [mean(costs[i] for i in group) for group in groups]
    return dict(
        groups=len(groups),
        slow_alone_ms=slow_ms,
        stitched_ms=mean(group_ms),
        ratio=mean(group_ms) / slow_ms,
        ratio_of_flops=mean(group_flops) / costs[1],
        by_group=[
            dict(gflops_at_512=flops / 1e9, ms=ms, of_slow=ms / slow_ms)
            for flops, ms in zip(group_flops, group_ms, strict=True)
        ],
    )


def load_step(name: str, device: str) -> tuple[nn.Module, Callable[[], object]]:
    """Return the model of a config, and a function that runs a training step."""
    cfg = Config.fromfile(CONFIGS / SETR.format(name))
    side, number = dict(cpu=(256, 1), cuda=(512, 2))[device]
    # Otherwise the preprocessor pads the images.
    cfg.model.data_preprocessor.size = (side, side)
    model = revert_sync_batchnorm(build(cfg, device)).train()
    optim = build_optim_wrapper(model, cfg.optim_wrapper)
    batch = make_batch(number, (side, side), 150)
    return model, partial(model.train_step, batch, optim)
