"""Whole models, counted and watched by torch's own counter while they predict."""

import pytest

TOOL = 'research/check_costs.py'
MORE = (
    *('conditional', 'dab', 'mmdet/deformable', 'dino', 'mask2former', 'maskformer'),
    *('cascade-mask', 'htc_', 'point', 'sparse', 'rtmdet-ins', 'condinst'),
    *('vfnet', 'gfl', 'atss', 'fcos', 'retinanet', 'yolox', 'knet'),
)


@pytest.mark.ops
@pytest.mark.parametrize(
    'names', [['mmdet/detr'], pytest.param(MORE, marks=pytest.mark.slow)]
)
def test_counted_is_what_is_seen(run_here, names):
    pytest.importorskip('mmdet')
    side = 64 if len(names) == 1 else 256  # of as many tokens as queries
    lines = run_here(TOOL, *names, '--side', side).splitlines()
    rows = [line for line in lines if line.startswith('| mm')]  # mmdet prints, too
    assert len(rows) >= len(names)
    for row in rows:
        _, counted, seen, _, scope, _ = (cell.strip() for cell in row[1:-1].split('|'))
        assert float(counted) == pytest.approx(float(seen), rel=0.01, abs=1e-4), row
        assert scope == 'all', row
