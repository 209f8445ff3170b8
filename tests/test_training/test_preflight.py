"""What is said of anchors that leave a stitched model no headroom."""

import json
from types import SimpleNamespace

import pytest
import torch
from mmengine.logging import HistoryBuffer

from snnet_mm.training import missing_headroom


def anchor(folder, scores, in_log):
    """An anchor from a checkpoint whose scores stand in the log, or inside."""
    logs = folder / '20261122_101010' / 'vis_data'
    logs.mkdir(parents=True)
    lines = [dict(scores, step=100), dict(loss=0.5, step=200)]
    lines += [dict(scores, step=200, time=0.1)] * in_log
    lines[0].update(dict.fromkeys(scores, 77.0))  # of an earlier validation
    text = '\n'.join(map(json.dumps, lines))
    (logs / 'scalars.json').write_text(text)
    found = {f'val/{k}': HistoryBuffer([v], [1]) for k, v in scores.items()}
    checkpoint = dict(state_dict={}, message_hub=dict(log_scalars=found))
    path = folder / 'iter_200.pth'
    torch.save({} if in_log else checkpoint, path)
    return SimpleNamespace(init_cfg=dict(type='Pretrained', checkpoint=str(path)))


@pytest.mark.parametrize('in_log', [True, False])
@pytest.mark.parametrize(
    ('metric', 'fast', 'slow', 'warns'),
    [
        ('mIoU', 50.0, 50.4, True),
        ('mIoU', 50.0, 50.6, False),
        ('coco/bbox_mAP', 0.300, 0.305, True),
        ('coco/bbox_mAP', 0.300, 0.307, False),
        ('nyu/RMSE', 0.500, 0.495, True),
        ('nyu/RMSE', 0.500, 0.480, False),
        ('nyu/RMSE', 5.0, 5.5, True),
        ('stitch_0/mIoU', 50.0, 40.0, False),
        ('fancy', 50.0, 40.0, False),
    ],
)
def test_the_slow_anchor_should_be_ahead(tmp_path, metric, fast, slow, warns, in_log):
    pair = [
        anchor(tmp_path / name, {metric: score}, in_log)
        for name, score in (('fast', fast), ('slow', slow))
    ]
    for init_cfg in (None, dict(type='Pretrained', checkpoint='timm://x')):
        unknown = SimpleNamespace(init_cfg=init_cfg)
        backbone = SimpleNamespace(anchors=[pair[0], unknown])
        assert missing_headroom(backbone) is None
    said = missing_headroom(SimpleNamespace(anchors=pair))
    assert bool(said) is warns
    if warns:
        assert f'{metric} of the slow anchor alone is {slow:.4g}' in said
        assert f'faster one {fast:.4g}' in said
