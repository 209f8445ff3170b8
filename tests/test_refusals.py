"""Settings that cannot be: the key to change; for the sentence, see test_checks.py.

What a whole model, a checkpoint or a file makes impossible is tested beside its part.
"""

import math
from functools import partial

import pytest
from tables import table_of

from snnet_mm.anchors import TimmAnchor
from snnet_mm.bridging import (
    BridgeSpace,
    Conv3x3Adapter,
    LinearAdapter,
    ViTBlockAdapter,
)
from snnet_mm.datasets import ToyScenes
from snnet_mm.esta import ImportanceSampler
from snnet_mm.exports import ExportRequest
from snnet_mm.models import Distillation
from snnet_mm.runtime import BudgetController
from snnet_mm.stitching import SlidingWindowSpace, TwoWaySpace
from snnet_mm.tasks.mmpretrain import AnchorClassifier
from snnet_mm.tasks.mmseg import RunningDepthMetric
from snnet_mm.training import (
    ResourceConstrainedSampler,
    SandwichSampler,
    StitchInitHook,
    StitchStatisticsHook,
    UniformSampler,
)

COSTS = table_of({0: 0, 1: 100})
DINOV2 = partial(TimmAnchor, 'vit_small_patch14_reg4_dinov2', img_size=28)
PAIR, SPACE, HOPS = SlidingWindowSpace((3, 3)), TwoWaySpace((12, 24)), [(8, 8)]


@pytest.mark.parametrize(
    ('call', 'key'),
    [
        (lambda: UniformSampler(COSTS, space=PAIR, anchors=False), 'sampler.anchors'),
        (lambda: ResourceConstrainedSampler(COSTS, step=1000), 'sampler.step'),
        (lambda: SandwichSampler(COSTS, SPACE, anchors='all'), 'sampler.anchors'),
        (lambda: ImportanceSampler(COSTS, 0, 2), 'sampler.warm_up'),
        (lambda: ImportanceSampler(COSTS, 1, 2, momentum=1), 'sampler.momentum'),
        (lambda: StitchInitHook(method='xavier'), 'StitchInitHook.method'),
        (lambda: StitchInitHook(num_images=0), 'StitchInitHook.num_images'),
        (lambda: StitchStatisticsHook(-1), 'stitch_statistics.num_images'),
        (lambda: ExportRequest((0,), ['openvino']), '--format'),
        (lambda: ExportRequest((0,), precisions=['bf16']), '--precision'),
        (lambda: ExportRequest((0,), ['mm'], ['int8']), '--precision'),
        (lambda: ExportRequest((0,), tolerance=-1), '--tolerance'),
        (lambda: BudgetController({0: 1, 1: math.nan}, target_fps=1), 'costs'),
        (lambda: BudgetController({0: 1}, target_fps=0), '--target-fps'),
        (lambda: ToyScenes(split='valid'), 'dataset.split'),
        (lambda: LinearAdapter(6, 4, HOPS, resize='strided'), 'stitching_layer.resize'),
        (lambda: LinearAdapter(6, 4, HOPS, (0, 5)), 'stitching_layer.type'),
        (lambda: Conv3x3Adapter(6, 4, [(8, 6)], resize='strided'), 'layer.resize'),
        (lambda: ViTBlockAdapter(6, 4, HOPS, head_dim=5), 'stitching_layer.head_dim'),
        (lambda: BridgeSpace((12, 12), [(0, 3)]), 'backbone.stages'),
        (lambda: BridgeSpace((12, 12), [(3, 4), (3, 4)]), 'backbone.stages'),
        (lambda: Distillation('', 0.5), 'model.labels'),
        (lambda: Distillation('soft', 2), 'model.alpha'),
        (lambda: DINOV2(drop_path_rate=1), 'drop_path_rate'),
        (lambda: DINOV2(drop_path_rate=[0.1, 0.2]), 'drop_path_rate'),
        (lambda: AnchorClassifier(8, 5, pooling='max'), 'head.pooling'),
        (lambda: AnchorClassifier(8, 5, hidden=9, distilled=True), 'hidden'),
        (lambda: RunningDepthMetric(crop='nyu'), 'test_evaluator.crop'),
    ],
)
def test_check_refuses_settings_that_cannot_be(call, key):
    name = key.rpartition('.')[2].lstrip('-')
    with pytest.raises(ValueError, match=rf'^{name}=.* is invalid: .*{key}\)$'):
        call()
