"""The registry of the papers' results: its runs, settings and pages."""

import re
from fnmatch import fnmatch

import pytest
from config_models import PAPERS, RUNS, load, read, runs
from papers import options_of, pages

SETTINGS = PAPERS['settings']
FIGURE = re.compile(r'\d+\.\d+')
# Runs whose model has the modules of another run's.
LIKE_OTHERS = (
    '*_vtab-*',
    '*-224x224-*',
    'esta/*/*shot-*',
    '*_4xb4-80k*',
    '*-published_*',
)


def at(cfg, key):
    """The value of a config at a key with dots."""
    (key,) = options_of([key], cfg.model)
    for part in key.split('.'):
        cfg = cfg[int(part)] if isinstance(cfg, list | tuple) else cfg[part]
    return cfg


@pytest.mark.parametrize('pattern', SETTINGS)
def test_runs_have_settings_of_the_papers(pattern):
    """What ``_delete_`` in a config drops with the rest would be missing here."""
    names = [name for name in RUNS if fnmatch(name, pattern)]
    assert names
    for name in names:
        cfg = read(name)
        for key, expected in SETTINGS[pattern].items():
            found = at(cfg, key)
            if isinstance(expected, dict):
                found = {k: found.get(k) for k in expected}
            found = list(found) if isinstance(found, tuple) else found
            assert found == expected, (name, key)


def test_pages_are_as_written():
    for path, text in pages().items():
        assert path.read_text() == text, f'{path}: run tools/papers.py'


@pytest.mark.parametrize('table', PAPERS['tables'])
def test_config_headers_have_figures_of_the_table(table):
    columns, rows = PAPERS['tables'][table].values()
    for name, cells in rows.items():
        assert len(cells) == len(columns)
        if RUNS[name].options:
            continue
        head = RUNS[name].config.read_text().partition('_base_')[0]
        for column, cell in zip(columns, cells, strict=True):
            if column.endswith(', paper') and 'GFLOPs' not in column:
                figures = FIGURE.findall(cell.partition(', 77.8 at worst')[0])
                assert {*figures} <= {*FIGURE.findall(head)}, name


@pytest.mark.slow
@pytest.mark.parametrize('name', [n for n in RUNS if RUNS[n].options])
def test_run_builds(name):
    if not any(fnmatch(name, pattern) for pattern in LIKE_OTHERS):
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
