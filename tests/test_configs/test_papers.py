"""The registry of the papers' results: its runs, settings and pages."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from config_models import CONFIGS, DISTINCT, PAPERS, RUNS, load, read, runs
from jobs import read_hours
from papers import options_of, pages
from reproduce import find_items

from snnet_mm.stitching import StitchTable

SETTINGS = PAPERS['settings']
DATA = Path(__file__).parents[1] / 'data'
FIGURE = re.compile(r'\d+\.\d+')
# Runs whose model has the modules of another run's.
LIKE_OTHERS = (
    '*_vtab-*',
    '*-224x224-*',
    'esta/*/*shot-*',
    '*_4xb4-80k*',
    '*-published_*',
)

# Results in configs, and the figures of the authors in tests/data.
PUBLISHED = {
    'setr/published/setr-naive_snnetv2-deit3-s-l_ade20k': 'ade20k_setr_deit3_s_l',
    'imagenet/published/snnetv2-deit3-s-l_in1k': 'imagenet_deit3_s_l',
    'imagenet/published/snnetv1-deit-ti-s-b_in1k': 'imagenet_v1_deit_ti_s_b',
    'imagenet/published/snnetv1-swin-ti-s-b_in1k': 'imagenet_v1_swin_ti_s_b',
    'imagenet/published/snnetv1-resnet18-50_in1k': 'imagenet_v1_resnet18_50',
    'imagenet/published/snnetv1-resnet18-swin-ti_in1k': 'imagenet_v1_resnet18_swin_ti',
    'imagenet/published/snnetv1-levit-192-256_in1k': 'imagenet_v1_levit',
}


def at(cfg, key):
    """The value of a config at a key with dots."""
    (key,) = options_of([key], cfg.model)
    for part in key.split('.'):
        cfg = cfg[int(part)] if isinstance(cfg, list | tuple) else cfg[part]
    return cfg


def test_hours_are_of_runs_and_sizes_of_the_page():
    known = read_hours()
    for name, training in known['trainings'].items():
        patterns = training['runs'].split()
        found = [run for run in RUNS if any(fnmatch(run, p) for p in patterns)]
        assert found, name
        assert float(training['hours'].lstrip('~')) > 0
        assert ('source' in training) == (not training['hours'].startswith('~'))
    page = (DATA.parents[1] / 'docs' / 'how_to' / 'data.md').read_text()
    for folder, size in known['data'].items():
        name = f'`{Path(folder).name}`' if 'fgvc' in folder else f'{size} GB'
        (line, *_) = [line for line in page.splitlines() if name in line]
        assert str(size) in line
        assert folder in page or 'fgvc' in folder


def test_runs_have_settings_of_the_papers(subtests):
    """What ``_delete_`` in a config drops with the rest would be missing here."""
    for pattern, settings in SETTINGS.items():
        names = [name for name in DISTINCT if fnmatch(name, pattern)]
        assert names, pattern
        for name in names:
            with subtests.test(name):
                assert settings_of(read(name), settings) == settings


def settings_of(cfg, like):
    """The settings of a config under the keys of others, and in their types."""
    found = {key: at(cfg, key) for key in like}
    for key, expected in like.items():
        if isinstance(expected, dict):
            found[key] = {k: found[key].get(k) for k in expected}
        elif isinstance(found[key], tuple):
            found[key] = list(found[key])
    return found


def test_pages_are_as_written():
    for path, text in pages().items():
        assert path.read_text() == text, f'{path}: run tools/papers.py'


def test_config_headers_have_figures_of_the_tables(subtests):
    for columns, rows in (table.values() for table in PAPERS['tables'].values()):
        for name, cells in rows.items():
            head = RUNS[name].config.read_text().partition('_base_')[0]
            for column, cell in zip(columns, cells, strict=True):
                of_paper = column.endswith(', paper') and 'GFLOPs' not in column
                if of_paper and not RUNS[name].options:
                    figures = FIGURE.findall(cell.partition(', 77.8 at worst')[0])
                    with subtests.test(name, column=column):
                        assert {*figures} <= {*FIGURE.findall(head)}


@pytest.mark.slow
def test_runs_build(subtests):
    for name in (name for name in DISTINCT if RUNS[name].options):
        if not any(fnmatch(name, pattern) for pattern in LIKE_OTHERS):
            with subtests.test(name):
                assert load(name)[1]


def test_runs_of_lists_have_options_of_entries():
    names = runs('esta/fgvc/lora-augreg-*_1xb64-100e_dogs-224x224')
    assert sorted(n.split('-')[2].split('_')[0] for n in names) == ['b', 's', 'ti']
    cfg = read('esta/fgvc/lora-augreg-s_1xb64-100e_dogs-224x224')
    assert cfg.model.backbone.arch == 'small'
    assert cfg.model.backbone.lora == dict(rank=16, alpha=16)
    assert cfg.model.head.num_classes == 120
    assert cfg.test_dataloader.dataset.data_root == 'data/fgvc/dogs'
    assert [s.end for s in cfg.param_scheduler] == [1690, 16900]


def test_items_of_papers_have_configs():
    for paper in PAPERS['papers']:
        for item in paper['items']:
            name = f'{paper["name"]} {item["ids"][0]}'
            assert item in find_items(PAPERS, name)
            patterns = *item.get('train', ()), *item.get('small', ())
            assert all(any(fnmatch(run, p) for run in RUNS) for p in patterns), name
            if 'published' in item:
                assert (CONFIGS / item['published']).exists()


@pytest.mark.parametrize('name, data', PUBLISHED.items())
def test_published_results_are_those_of_the_authors(name, data):
    results = StitchTable.read(CONFIGS / f'{name}.json')
    theirs = json.loads((DATA / f'{data}.json').read_text())['stitches']
    if isinstance(theirs, list):  # in the form of ours
        theirs = {str(row['id']): row | row['metrics'] for row in theirs}
    assert {str(row.id) for row in results.rows} == {*theirs}
    for row in results.rows:
        figures = theirs[str(row.id)]
        assert row.flops == figures['flops']
        keys = {'acc1', 'accuracy/top1', 'mIoU'} & {*figures}
        assert [figures[key] for key in keys] == [row.metrics[results.metric]]
