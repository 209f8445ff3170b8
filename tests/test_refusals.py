"""Settings that cannot be: the value, what is allowed, and the key to change.

What a whole model, a checkpoint or a file makes impossible is tested beside its part.
"""

import math

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
from snnet_mm.evaluation import StitchStatisticsHook
from snnet_mm.exports import ExportRequest
from snnet_mm.models import Distillation
from snnet_mm.runtime import BudgetController
from snnet_mm.stitching import SlidingWindowSpace, TwoWaySpace
from snnet_mm.tasks.classification_parts import AnchorClassifier
from snnet_mm.tasks.depth_parts import RunningDepthMetric
from snnet_mm.training import (
    ResourceConstrainedSampler,
    StitchInitHook,
    UniformSampler,
    check_loop,
)

COSTS = table_of({0: 0, 1: 100})
DINOV2 = 'vit_small_patch14_reg4_dinov2'
PAIR, SPACE, HOPS = SlidingWindowSpace((3, 3)), TwoWaySpace((12, 24)), [(8, 8)]


@pytest.mark.parametrize(
    ('call', 'words'),
    [
        (lambda: UniformSampler(COSTS, space=PAIR, anchors=False), 'are all anchors'),
        (lambda: ResourceConstrainedSampler(COSTS, step=1000), 'step=1000; .*0 to 100'),
        (lambda: ImportanceSampler(COSTS, 0, 2), 'warm_up=0; allowed: 1 step'),
        (lambda: ImportanceSampler(COSTS, 1, 2, momentum=1), '=1; allowed: 0 to below'),
        (lambda: StitchInitHook(method='xavier'), 'method=.*StitchInitHook.method'),
        (lambda: StitchInitHook(num_images=0), 'num_images=0.*StitchInitHook.num_im'),
        (lambda: StitchStatisticsHook(-1), 'num_images=-1; allowed: 1 or more'),
        (lambda: check_loop(dict(max_iters=-1)), 'max_iters=-1.*from 1 on .*train_cfg'),
        (lambda: ExportRequest((0,), precisions=['bf16']), "'fp32', 'int8'"),
        (lambda: ExportRequest((0,), ['mm'], ['int8']), 'not with mm: a checkpoint is'),
        (lambda: ExportRequest((0,), tolerance=-1), 'numbers from 0'),
        (lambda: BudgetController({0: 1, 1: math.nan}, target_ms=1), 'costs'),
        (lambda: BudgetController({0: 1}, target_fps=0), 'target_fps|-fps'),
        (lambda: ToyScenes(split='valid'), "'valid'; allowed: 'train', 'val', 'test'"),
        (lambda: ToyScenes(size=(64, 8)), r'\(64, 8\); allowed: \(H, W\), 16 or more'),
        (lambda: LinearAdapter(6, 4, HOPS, resize='strided'), "'bilinear', 'none' "),
        (lambda: LinearAdapter(6, 4, HOPS, (0, 5)), 'and no registers'),
        (
            lambda: Conv3x3Adapter(6, 4, [(8, 2)], resize='strided'),
            'whole multiples',
        ),
        (lambda: ViTBlockAdapter(6, 4, HOPS, head_dim=5), 'divisors of the width'),
        (lambda: BridgeSpace((12, 12), [(0, 3)]), 'i from 1 to 12'),
        (lambda: BridgeSpace((12, 12), [(3, 4), (3, 4)]), 'different pairs'),
        (lambda: Distillation('', 0.5), "labels=''.*model.labels"),
        (lambda: Distillation('soft', 2), 'alpha=2.*model.alpha'),
        (
            lambda: TimmAnchor(DINOV2, img_size=28, drop_path_rate=1),
            'drop_path_rate=1; ',
        ),
        (lambda: AnchorClassifier(8, 5, pooling='max'), "'cls', 'mean', 'norm-mean'"),
        (lambda: AnchorClassifier(8, 5, hidden=9, distilled=True), '0 if distilled'),
        (lambda: RunningDepthMetric(crop='nyu'), "'nyu'; allowed: 'eigen', 'garg', N"),
    ],
)
def test_settings_that_cannot_be(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert 'allowed: ' in str(error.value)
