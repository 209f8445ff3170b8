"""Figures of the README equal the result files that its pages name."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / 'configs' / 'dinov2' / 'results'
README = (ROOT / 'README.md').read_text()
SHARES = {  # start of a row: files, metric
    'the same after 1200': ('branches_1200_seed?_test', 'mIoU'),
    'at 350x476': ('branches_4000_350x476_seed?_test', 'mIoU'),
    'DPT, depth': ('branches_depth_400_seed*', 'RMSE'),
    'Mask R-CNN': ('branches_nuclei_300_seed?', 'coco/bbox_mAP'),
    'EoMT on CamVid': ('branches_eomt_600_seed?_test', 'mIoU'),
    'SegFormer': ('branches_segformer_2500_seed?_test', 'mIoU'),
    'classifier': ('branches_tiny_1200_seed*', 'accuracy/top1'),
}


def read(pattern, metric):
    """Return GFLOPs of the first network, and metrics (networks, stitches)."""
    files = sorted(RESULTS.glob(f'{pattern}.json'))
    tables = [json.loads(file.read_text())['stitches'] for file in files]
    assert tables, pattern
    metrics = np.array([[row['metrics'][metric] for row in t] for t in tables])
    return [row['flops'] / 1e9 for row in tables[0]], metrics


def cells(start):
    """Return the cells of a README's row but the first, which begins with a text."""
    row = re.search(rf'^\| \[?{re.escape(start)}.*', README, re.MULTILINE)[0]
    return [cell.strip() for cell in row.strip('|').split('|')][1:]


def test_readme_elastic_table_equals_results():
    flops, metrics = read('branches_600_seed?_test', 'mIoU')
    assert len(metrics) == 3
    labels = 'the network', *(f'{n} %' for n in (75, 50, 33, 25, 15))
    for i, label in enumerate(labels):
        mean = metrics[:, i].mean()
        share = 100 * (metrics[:, i] / metrics[:, 0]).mean()
        assert cells(label)[:2] == [f'{flops[i]:.2f}', f'{mean:.1f}'], label
        assert float(cells(label)[2].rstrip('%')) == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize('start', SHARES)
def test_readme_shares_of_other_networks_equal_results(start):
    pattern, metric = SHARES[start]
    _, metrics = read(pattern, metric)
    found = 100 * (metrics / metrics[:, :1]).mean(0)[1:5]
    found -= 100 if metric == 'RMSE' else 0
    written = [float(cell.rstrip('%')) for cell in cells(start)]
    assert written == pytest.approx(found.tolist(), abs=0.1)
