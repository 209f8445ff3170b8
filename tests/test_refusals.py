"""Settings that cannot be: the value, what is expected, and the key to change.

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
DINOV2 = 'vit_small_patch14_reg4_dinov2'
PAIR, SPACE, HOPS = SlidingWindowSpace((3, 3)), TwoWaySpace((12, 24)), [(8, 8)]


@pytest.mark.parametrize(
    ('call', 'words'),
    [
        (lambda: UniformSampler(COSTS, space=PAIR, anchors=False), 'are all anchors'),
        (
            lambda: ResourceConstrainedSampler(COSTS, step=1000),
            'step=1000 is .*0 to 100',
        ),
        (lambda: SandwichSampler(COSTS, SPACE, anchors='all'), "anchors='all' is inv"),
        (lambda: ImportanceSampler(COSTS, 0, 2), 'warm_up=0 is invalid'),
        (lambda: ImportanceSampler(COSTS, 1, 2, momentum=1), '=1 is invalid'),
        (lambda: StitchInitHook(method='xavier'), r'StitchInitHook\.method'),
        (lambda: StitchInitHook(num_images=0), r'StitchInitHook\.num_images'),
        (lambda: StitchStatisticsHook(-1), 'num_images=-1 is invalid'),
        (lambda: ExportRequest((0,), ['openvino']), "expected one of 'mm', 'onnx' "),
        (lambda: ExportRequest((0,), precisions=['bf16']), "'fp32', 'int8'"),
        (lambda: ExportRequest((0,), ['mm'], ['int8']), "precision='int8' is invalid"),
        (lambda: ExportRequest((0,), tolerance=-1), 'tolerance=-1 is invalid'),
        (lambda: BudgetController({0: 1, 1: math.nan}, target_fps=1), 'costs'),
        (lambda: BudgetController({0: 1}, target_fps=0), 'target-fps=0 is invalid'),
        (lambda: ToyScenes(split='valid'), "'valid' is invalid"),
        (lambda: LinearAdapter(6, 4, HOPS, resize='strided'), "'bilinear', 'none' "),
        (lambda: LinearAdapter(6, 4, HOPS, (0, 5)), 'stitching_layer.type'),
        (
            lambda: Conv3x3Adapter(6, 4, [(8, 2)], resize='strided'),
            'stitching_layer.resize',
        ),
        (lambda: ViTBlockAdapter(6, 4, HOPS, head_dim=5), 'head_dim=5 is invalid'),
        (lambda: BridgeSpace((12, 12), [(0, 3)]), 'i from 1 to 12'),
        (lambda: BridgeSpace((12, 12), [(3, 4), (3, 4)]), 'different pairs'),
        (lambda: Distillation('', 0.5), "labels=''.*model.labels"),
        (lambda: Distillation('soft', 2), 'alpha=2.*model.alpha'),
        (
            lambda: TimmAnchor(DINOV2, img_size=28, drop_path_rate=1),
            'drop_path_rate=1 is ',
        ),
        (
            lambda: TimmAnchor(DINOV2, img_size=28, drop_path_rate=[0.1, 0.2]),
            r'drop_path_rate=\[0.1, 0.2\] is invalid: expected a number in',
        ),
        (lambda: AnchorClassifier(8, 5, pooling='max'), "'cls', 'mean', 'norm-mean'"),
        (
            lambda: AnchorClassifier(8, 5, hidden=9, distilled=True),
            'hidden=9 is invalid',
        ),
        (lambda: RunningDepthMetric(crop='nyu'), "'nyu' is invalid"),
    ],
)
def test_check_refuses_settings_that_cannot_be(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert 'expected ' in str(error.value)
