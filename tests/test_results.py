"""Figures of pages equal those of the result files that they name."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / 'configs' / 'dinov2' / 'results'
README = (ROOT / 'README.md').read_text()
EXPERIMENTS = (ROOT / 'docs' / 'explanation' / 'experiments_elastic.md').read_text()
DINOV2 = (RESULTS.parent / 'README.md').read_text()
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
    """Return GFLOPs and metrics (networks, stitches)."""
    files = sorted(RESULTS.glob(f'{pattern}.json'))
    tables = [json.loads(file.read_text())['stitches'] for file in files]
    assert tables, pattern
    metrics = np.array([[row['metrics'][metric] for row in t] for t in tables])
    return np.array([[row['flops'] / 1e9 for row in t] for t in tables]), metrics


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
        assert cells(label)[:2] == [f'{flops[0, i]:.2f}', f'{mean:.1f}'], label
        assert float(cells(label)[2].rstrip('%')) == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize('start', SHARES)
def test_readme_shares_of_other_networks_equal_results(start):
    pattern, metric = SHARES[start]
    flops, metrics = read(pattern, metric)
    found = 100 * (metrics / metrics[:, :1]).mean(0)[1:5]
    found -= 100 if metric == 'RMSE' else 0
    of_flops = 100 * (flops / flops[:, :1]).mean(0)[1:5]  # of the whole network
    written = [re.findall(r'[-+.\d]+', cell) for cell in cells(start)]
    kept, at = np.array(written, float).T
    assert kept == pytest.approx(found, abs=0.1)
    assert at == pytest.approx(of_flops, abs=0.51)


def rows_after(start, page=DINOV2):
    """Return cells of the first table of a page after a text."""
    table = re.search(r'(^\|.*\n)+', page.split(start, 1)[1], re.MULTILINE)[0]
    lines = table.splitlines()[2:]
    return [[c.strip() for c in line.strip('|').split('|')] for line in lines]


@pytest.mark.parametrize(
    ('start', 'pattern', 'column'),
    [
        ('in float32; mIoU of 233', 'branches_600_seed?_test', 2),
        ('in float32; mIoU of 233', 'branches_600_seed[01]_val', 4),
        ('**Networks of 1200', 'branches_1200_seed?_test', 2),
        ('**A network of 67.6', 'branches_4000_350x476_seed?_test', 2),
    ],
)
def test_dinov2_tables_equal_results(start, pattern, column):
    flops, metrics = read(pattern, 'mIoU')
    rows = rows_after(start)
    assert len(rows) == metrics.shape[1]
    shares = 100 * (metrics / metrics[:, :1]).mean(0)
    for i, row in enumerate(rows):
        assert row[1].split()[0] == f'{flops[0, i]:.2f}'
        assert row[column] == ', '.join(f'{value:.2f}' for value in metrics[:, i])
        share = float(row[column + 1].rstrip('%'))
        assert share == pytest.approx(shares[i], abs=0.051)


def test_dinov2_depth_table_equals_results():
    flops, metrics = read('branches_depth_400_seed*', 'RMSE')
    rows = rows_after('RMSE of 40 test images')
    assert len(rows) == metrics.shape[1]
    changes = 100 * (metrics / metrics[:, :1]).mean(0) - 100
    for i, row in enumerate(rows):
        first, *others = (f'{value:.3f}' for value in metrics[:, i])
        assert row[2:5] == [f'{flops[:, i].mean():.2f}', first, ', '.join(others)]
        assert row[5] == (f'{changes[i]:+.1f}%' if i else '')


@pytest.mark.parametrize(
    ('start', 'name'),
    [('gives them budgets', 'stitched'), ('86.13 |', 'elastic')],
)
def test_toy_tables_equal_results(start, name):
    folder = ROOT / 'configs' / 'toy'
    read = json.loads((folder / 'results' / f'demo_{name}.json').read_text())
    known = {
        f'{r["flops"] / 1e6:.1f} {r["metrics"]["mIoU"]:.2f}' for r in read['stitches']
    }
    rows = rows_after(start, (folder / 'README.md').read_text())
    assert len(rows) >= 4
    for _, flops, *_, score in rows:
        assert f'{flops} {score}' in known


def test_tables_of_image_sizes_equal_results():
    files = sorted(RESULTS.glob('sizes_4000_seed?_test.json'))
    tables = [json.loads(file.read_text())['stitches'] for file in files]
    ids = {'the network': 0, '75%': 1, '50%': 2, '33%': 3, '25%': 4, '15%': 5}
    shares = {}
    for size, runs, flops, scores, share, *_ in rows_after('**Better net', EXPERIMENTS):
        height, width = map(int, size.strip('*').split('x'))
        key = [height, width], ids[runs]
        found = [r for t in tables for r in t if (r['input_size'], r['id']) == key]
        of_networks = [table[0]['metrics']['mIoU'] for table in tables]
        mious = [row['metrics']['mIoU'] for row in found]
        assert scores == ', '.join(f'{value:.2f}' for value in mious)
        mean = 100 * np.mean(np.divide(mious, of_networks))
        assert float(share.strip('*%')) == pytest.approx(mean, abs=0.051)
        assert flops.split()[0] == f'{found[0]["flops"] / 1e9:.2f}'
        shares[flops.split('(')[1].rstrip('%)')] = share.strip('*')
    written = cells('the same, below half')
    assert written == [f'{shares[n]} at {n}%' for n in ('75', '50', '39', '26')]
