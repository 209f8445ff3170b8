"""Figures of pages equal those of the runs in configs/results.csv."""

import csv
import json
import re
import sys
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from pages import headings_of

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / 'tools' / 'research'))
import results  # noqa: E402
import untrained  # noqa: E402

LINES = results.read_lines()
OTHERS_LINES = results.read_lines(file=results.UNTRAINED)
RUNS = dict.fromkeys(line['run'] for line in LINES)
README = (ROOT / 'README.md').read_text()
DINOV2 = (ROOT / 'configs/dinov2/README.md').read_text()
TOY = (ROOT / 'configs/toy/README.md').read_text()
ELASTIC = (ROOT / 'docs/explanation/experiments_elastic.md').read_text()
TRIED = (ROOT / 'docs/explanation/tried_and_left.md').read_text()
UNTRAINED = (ROOT / 'docs/explanation/untrained.md').read_text()
PAIRS = (ROOT / 'docs/explanation/experiments.md').read_text()


def figures(field, pattern, **same):
    """Return numbers of a field (stitches, runs); ``same`` selects lines."""
    runs = [run for run in RUNS if fnmatch(run, pattern)]
    assert runs, pattern
    lines = [line for line in LINES if same.items() <= line.items()]
    return np.array(
        [[float(r[field]) for r in lines if r['run'] == run] for run in runs]
    ).T


def scores(pattern, **same):
    return figures('score', pattern, **same)


def means(pattern, **same):
    return scores(pattern, **same).mean(1, keepdims=True)


def shares(pattern, **same):
    return figures('share', pattern, **same).mean(1, keepdims=True)


def gflops(pattern, **same):
    return figures('gflops', pattern, **same).mean(1, keepdims=True)


def ms(pattern, **same):
    return figures('ms', pattern, **same)


def percent(column):
    """Return percentages of the first row."""
    return 100 * column / column[0]


def with_percent(column):
    return np.hstack([column, percent(column)])


def check_cell(cell, expected):
    """Check numbers that a cell begins with, each to the decimals that it has."""
    written = re.findall(r'[-+]?\d[\d.]*', cell)
    assert len(written) >= len(expected), cell
    for text, value in zip(written, expected, strict=False):
        unit = 10.0 ** -len(text.partition('.')[2])
        assert float(text) == pytest.approx(value, abs=0.505 * unit), cell


def table_after(start, page):
    """Return cells of the first table of a page after a text."""
    table = re.search(r'(^\|.*\n)+', page.split(start, 1)[1], re.MULTILINE)[0]
    lines = table.splitlines()[2:]
    return [[c.strip() for c in line.strip('|').split('|')] for line in lines]


FP32, INT8 = dict(precision='fp32'), dict(precision='int8')
NUCLEI = 'branches_nuclei_300_seed?'
TABLES = {  # page, text before a table: its columns of figures
    (DINOV2, 'in float32; mIoU of 233'): {
        1: with_percent(gflops('branches_600_seed?_test')),
        2: scores('branches_600_seed?_test'),
        3: shares('branches_600_seed?_test'),
        4: scores('branches_600_seed[01]_val'),
        5: shares('branches_600_seed[01]_val'),
    },
    (DINOV2, '**Networks of 1200'): {
        1: with_percent(gflops('branches_1200_*')),
        2: scores('branches_1200_*'),
        3: shares('branches_1200_*'),
    },
    (DINOV2, '**A network of 67.6'): {
        1: with_percent(gflops('branches_4000_*')),
        2: scores('branches_4000_*'),
        3: shares('branches_4000_*'),
        6: scores('sizes_4000_seed0_test', size='350x476'),
    },
    (DINOV2, '**Graphs** of seed 0'): {
        1: scores('bundle_600_*', **FP32),
        2: ms('bundle_600_*', **FP32),
        3: percent(ms('bundle_600_*', **FP32)),
        4: scores('bundle_600_*', **INT8),
        5: scores('bundle_600_*', **FP32) - scores('bundle_600_*', **INT8),
        6: ms('bundle_600_*', **INT8),
        7: percent(ms('bundle_600_*', **INT8)),
    },
    (DINOV2, 'RMSE of 40 test images'): {
        2: gflops('branches_depth_*'),
        3: scores('branches_depth_400_seed0'),
        4: scores('branches_depth_400_seed[0-3]*')[:, 1:],
        5: shares('branches_depth_*') - 100,
    },
    (ELASTIC, '## Stock SegFormer'): {
        1: gflops('branches_segformer_*'),
        2: scores('branches_segformer_*'),
        3: shares('branches_segformer_*'),
        4: gflops('branches_swin_*'),
        5: scores('branches_swin_*'),
        6: shares('branches_swin_*'),
    },
    (ELASTIC, '## Classification'): {
        1: gflops('branches_tiny_*'),
        2: np.hstack([scores('branches_tiny_*seed?'), scores('branches_tiny_*h200')]),
        3: shares('branches_tiny_*'),
    },
    (ELASTIC, '## Nuclei'): {
        1: gflops(NUCLEI, metric='coco/bbox_mAP'),
        2: 100 * scores(NUCLEI, metric='coco/bbox_mAP'),
        3: 100 * scores(NUCLEI, metric='coco/bbox_mAP_50'),
        4: 100 * scores(NUCLEI, metric='coco/segm_mAP'),
    },
    (ELASTIC, '### mIoU on CamVid'): {
        1: gflops('branches_eomt_*'),
        3: scores('branches_eomt_*'),
        4: shares('branches_eomt_*'),
    },
    (ELASTIC, '**Graphs** of another network'): {
        1: scores('bundle_eomt_*', **FP32),
        2: shares('bundle_eomt_*', **FP32),
        3: ms('bundle_eomt_*', **FP32),
        4: scores('bundle_eomt_*', **INT8),
        5: scores('bundle_eomt_*', **FP32) - scores('bundle_eomt_*', **INT8),
        6: ms('bundle_eomt_*', **INT8),
    },
}


@pytest.mark.parametrize('page, start', TABLES, ids=[start for _, start in TABLES])
def test_tables_of_pages_equal_results(page, start):
    rows = table_after(start, page)
    for column, expected in TABLES[page, start].items():
        assert len(rows) == len(expected)
        for row, values in zip(rows, expected, strict=True):
            if row[column]:  # no change of the network itself
                check_cell(row[column], values)


OTHERS = {  # start of a row: runs, metric
    'DPT, depth': ('branches_depth_*', 'RMSE'),
    'EoMT on CamVid': ('branches_eomt_*', 'mIoU'),
    'classifier': ('branches_tiny_*', 'accuracy/top1'),
}


@pytest.mark.parametrize('start', OTHERS)
def test_readme_shares_of_other_networks_equal_results(start):
    pattern, metric = OTHERS[start]
    kept = shares(pattern, metric=metric) - 100 * (metric == 'RMSE')
    of_flops = percent(gflops(pattern, metric=metric))
    for cell, values in zip(
        cells(start), np.hstack([kept, of_flops])[1:], strict=False
    ):
        check_cell(cell, values)


def cells(start):
    """Return the cells of a README's row but the first, which begins with a text."""
    row = re.search(rf'^\| \[?{re.escape(start)}.*', README, re.MULTILINE)[0]
    return [cell.strip() for cell in row.strip('|').split('|')][1:]


def test_tables_of_image_sizes_equal_results():
    found = {}
    file = ROOT / 'configs/dinov2/results/graphs_350x476.json'
    times = {(r['size'], r['budget']): r for r in json.loads(file.read_text())['rows']}
    network = times['350x476', '100%']['fp32']
    for size, budget, flops, ms, score, share, *_ in table_after('**Better', ELASTIC):
        same = dict(size=size.strip('*'), budget=budget.replace('the network', '100%'))
        took = [times[same['size'], same['budget']][k] for k in ('fp32', 'int8')]
        check_cell(ms, [*took, *(100 * x / network for x in took)])
        whole = figures('gflops', 'sizes_4000_*', budget='100%', size='350x476')[0]
        costs = figures('gflops', 'sizes_4000_*', **same)[0]
        check_cell(flops, (costs[0], 100 * (costs / whole).mean()))
        check_cell(score, scores('sizes_4000_*', **same)[0])
        check_cell(share.strip('*'), shares('sizes_4000_*', **same)[0])
        found[same['size'], int(flops.split('(')[1].rstrip('%)'))] = score, share, ms
    assert len(found) == 13
    rows = table_after('## Make a trained network elastic', README)
    assert len(rows) == 7
    for flops, size, score, share, ms in rows:
        scores_, kept, took = found[size, int(flops.split()[0])]
        check_cell(score, [float(x) for x in scores_.split(', ')])
        assert share == kept.strip('*')
        check_cell(took, [float(x) for x in ms.split(', ')])


@pytest.mark.parametrize('run', dict.fromkeys(line['run'] for line in OTHERS_LINES))
def test_tables_of_others_without_training_equal_results(run):
    table = untrained.markdown([x for x in OTHERS_LINES if x['run'] == run])
    assert table in UNTRAINED


def test_overview_of_others_without_training_equals_results():
    assert untrained.overview(OTHERS_LINES, '50%') in UNTRAINED
    shares = {
        (x['seed'], x['kind']): float(x['share'])
        for x in OTHERS_LINES
        if (x['run'], x['budget']) == ('camvid_600', '50%')
    }
    rows = {row[0]: row for row in table_after('**Within half', UNTRAINED)}
    camvid = 2
    check_cell(rows['ToMe'][camvid], [shares['mean', 'ToMe']])
    check_cell(rows['SnapViT'][camvid], [shares['0', 'SnapViT']])  # of one seed


def test_whole_detector_on_smaller_images_equals_results():
    runs = 'whole_nuclei_600_*'
    parts = UNTRAINED.split('The whole detector on images of')[1].split('%')[0]
    pixels, aps, costs = (
        re.findall(r'[\d.]*\d', x) for x in re.split('AP| at ', parts)
    )
    assert pixels == [run[-3:] for run in RUNS if fnmatch(run, runs)][::-1]
    check_cell(' '.join(aps), scores(runs)[0, ::-1])
    whole = next(x for x in OTHERS_LINES if x['run'] == 'nuclei_600')
    shares = 100 * figures('gflops', runs)[0, ::-1] / float(whole['gflops'])
    check_cell(' '.join(costs), shares)


def test_table_of_the_pair_equals_results():
    file = ROOT / 'configs/dinov2/results/pair_camvid_test.json'
    known = json.loads(file.read_text())['rows']
    rows = table_after('## A pair against', PAIRS)
    for row, (cost, stitch, pair, alone, *written) in zip(known, rows, strict=True):
        assert (cost, stitch) == (row['cost'], row['stitch'])
        check_cell(pair, row['pair']['seeds'])
        check_cell(alone, row['alone']['seeds'])
        for key, cell in zip(('difference', 'line'), written, strict=True):
            if key in row:
                check_cell(cell, [row[key][k] for k in ('value', 'low', 'high')])
    area = known[-1]['difference']
    cell = re.search(r'mIoU: (\+.*) in area over both', README)[1]
    check_cell(cell, [area[k] for k in ('value', 'low', 'high')])


TINY = (ROOT / 'configs/imagenet/small_scale.md').read_text()
CAMVID = (ROOT / 'configs/camvid/README.md').read_text()
COMPARED = {  # page, text before a table: file of compare_fronts.py
    (TINY, '### Figure 11'): 'imagenet/results/figure_11.json',
    (TINY, '### Drop path'): 'imagenet/results/drop_path.json',
    (CAMVID, '## Ablation'): 'camvid/results/table_2.json',
}


@pytest.mark.parametrize('page, start', COMPARED, ids=[start for _, start in COMPARED])
def test_tables_of_components_equal_results(page, start):
    """Cells are means with all seeds, and differences to the row above."""
    found = json.loads((ROOT / 'configs' / COMPARED[page, start]).read_text())
    names = [*found['figures']]
    figures = found['figures'][names[0]]
    common, fast = (
        next(key for key in figures if key.startswith(start))
        for start in ('mean of the', 'best within')
    )
    rows = table_after(start, page)
    assert len(rows) == len(names)
    for name, row in zip(names, rows, strict=True):
        for place, figure in enumerate((common, fast, 'area under front')):
            score, change = row[-6:][2 * place : 2 * place + 2]
            known = found['figures'][name][figure]
            check_cell(score, [known['value'], *known['seeds']])
            assert bool(change) == (name in found['differences'])
            if change:
                changed = found['differences'][name][figure]
                check_cell(change, [changed[k] for k in ('value', 'low', 'high')])


DECIDED = {  # start of a row: way
    'tokens weighted by rarity': 'rarity',
    'all tokens alike': 'plain',
    'weighted by `1': 'rarity+norm',
    '75 images': 'rarity+75',
    'ridges': 'rarity+oas',
    'narrow branches': 'rarity+maps',
    'plans of least': 'rarity+gram',
}


def test_table_of_decisions_equals_results():
    file = ROOT / 'configs/dinov2/results/decide_600.json'
    known = {(r['budget'], r['way']): r for r in json.loads(file.read_text())['rows']}
    rows = table_after('### Decided on validation images', TRIED)
    assert len(rows) == len(DECIDED)
    for label, *written in rows:
        (way,) = (w for start, w in DECIDED.items() if start in label)
        for budget, cell in zip(('50%', '33%', '25%', '15%'), written, strict=True):
            row = known[budget, way]
            interval = [row[k] for k in ('value', 'low', 'high')]
            check_cell(cell, row['seeds'] if way == 'rarity' else interval)


def test_table_of_smaller_graphs_equals_results():
    """Rows are whole blocks by GFLOPs, then images by size."""
    for label, *row in table_after('**Against whole blocks', DINOV2):
        blocks, size = (re.search(p, label) for p in (r'[\d.]+(?= GF)', r'\d+x\d+'))
        run = f'bundle_{"blocks" if blocks else "sizes"}_600_seed0_test'
        lines = [
            line
            for line in LINES
            if line['run'] == run
            and (blocks or line['size'] == size[0])
            and (size or f'{float(line["gflops"]):.2f}' == blocks[0])
        ]
        assert [line['precision'] for line in lines] == ['fp32', 'int8'], label
        for cell, (line, field) in zip(
            row, product(lines, ('score', 'ms')), strict=True
        ):
            check_cell(cell, [float(line[field])])


def test_tables_of_pairs_equal_results():
    def best(run, budget):
        lines = zip(*(figures(f, run)[:, 0] for f in ('gflops', 'score')), strict=True)
        return max(score for cost, score in lines if cost <= budget + 0.01)

    *rows, _ = table_after('## A chain and its network', PAIRS)
    assert len(rows) == 10
    for flops, stitch, score, alone, *_ in rows:
        same = dict(stitch=stitch.split(':')[0], route=stitch.split('`')[1])
        cost = figures('gflops', 'pair_300_seed0_test', **same)[0]
        check_cell(flops, cost)
        check_cell(score, scores('pair_300_seed0_test', **same)[0])
        check_cell(alone, [best('branches_900_seed0_test', cost[0])])
    rows = table_after('and differences of areas with intervals', PAIRS)
    for seed, row in enumerate(rows):
        runs = (f'{kind}_seed{seed}_gpu_test' for kind in ('pair_300', 'branches_900'))
        fast, cut = (
            scores(run, stitch=i)[0] for run, i in zip(runs, '03', strict=True)
        )
        check_cell(row[6], fast)
        check_cell(row[7], cut)


@pytest.mark.parametrize(
    ('start', 'run'),
    [('gives them budgets', 'demo_stitched'), ('86.13 |', 'demo_elastic')],
)
def test_toy_tables_equal_results(start, run):
    rows = table_after(start, TOY)
    assert len(rows) >= 4
    costs = 1000 * figures('gflops', run)[:, 0]
    for _, flops, *latency, score in rows:
        found = np.flatnonzero(np.abs(costs - float(flops)) < 0.051)
        found = found[[f'{scores(run)[i, 0]:.2f}' == score for i in found]]
        assert len(found), score
        if latency:
            check_cell(latency[0], ms(run)[found[0]])


def test_every_run_that_pages_name_has_results():
    text = '\n'.join((DINOV2, TOY, ELASTIC, PAIRS))
    kinds = '|'.join(sorted({run.split('_')[0] for run in RUNS}))
    names = re.findall(rf'`((?:{kinds}|{{pair_300)[\w{{}},]*_[\w{{}},]+)`', text)
    assert len(names) > 12
    for name in names:
        parts = re.split(r'{(.*?)}', name)
        parts = [p.split(',') if i % 2 else [p] for i, p in enumerate(parts)]
        assert {''.join(p) for p in product(*parts)} <= RUNS.keys(), name


def test_results_are_written_by_the_tool(tmp_path, monkeypatch):
    with results.FILE.open(newline='') as file:
        assert tuple(next(csv.reader(file))) == results.FIELDS
    monkeypatch.setattr(results, 'FILE', tmp_path / 'results.csv')
    results.FILE.write_text(','.join(results.FIELDS) + '\n')
    for run in RUNS:
        lines = [line for line in LINES if line['run'] == run]
        results.write_lines(lines)
        assert results.read_lines(run) == lines
        table = results.read_table(run)
        budgets = [*dict.fromkeys(line['budget'] for line in lines)][1:]
        about = {k: lines[0][k] for k in (*results.ABOUT, 'commands')}
        metrics = [*dict.fromkeys(line['metric'] for line in lines)]
        assert results.lines_of(table, metrics, budgets, **about) == lines
    assert results.read_lines() == LINES


def test_results_tool_replaces_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(results, 'FILE', tmp_path / 'results.csv')
    run, other = 'demo_elastic', 'sizes_4000_seed0_test'
    results.FILE.write_text(','.join(results.FIELDS) + '\n')
    kept = [line for line in LINES if line['run'] == run]
    results.write_lines(kept + [dict(kept[0], run=other)])
    results.read_table(run).save(tmp_path / 'stitches.json')
    about = dict.fromkeys(results.ABOUT, 'x') | dict(run=other, commands='a.md#b')
    options = [f'--{name}={value}' for name, value in about.items()]
    budgets = ['--budgets', '25%', '23%', '20%']
    argv = ['results.py', str(tmp_path / 'stitches.json'), *options, *budgets]
    monkeypatch.setattr(sys, 'argv', argv)
    results.main()
    assert results.read_lines() == kept + [{**line, **about} for line in kept]


def test_commands_stand_below_the_headings_that_results_name():
    for page, heading in {tuple(line['commands'].split('#')) for line in LINES}:
        assert heading in headings_of(ROOT / page), page
