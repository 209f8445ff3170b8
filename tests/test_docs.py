"""What the pages say is there: files, links, options, names; and their snippets run."""

import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import supported
import torch
from config_models import RUNS
from mm_backbones import VAN
from mmengine.registry import MODELS, TASK_UTILS
from pages import headings_of
from small import build_disturbed, disturb, small
from states import states_on_route

from snnet_mm.anchors.blockwise import MIRRORED
from snnet_mm.costs import cost_table
from snnet_mm.exports import single_stitch
from snnet_mm.models import fit_stitching_layers
from snnet_mm.stitching.metrics import DIRECTIONS, KEY_METRICS, metric_directions
from snnet_mm.tasks import TASKS, task_of
from snnet_mm.training.config import make_safe
from snnet_mm.utils import load_config

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob('*.md'), *(ROOT / 'docs').rglob('*.md')]
PAGES += (ROOT / 'configs').glob('*/*.md')
CONFIGS = [Path(name).name for name in RUNS]
FILES = re.compile(r'(?<!mim/)\b((?:configs|tools|tests|snnet_mm)/[\w./+-]*\w)')
STEMS = re.compile(r'\b([\w.+-]+_\d+xb\d+[\w.+-]*?)(?:\.py)?(?=[\s`/)]|$)')


def each_page(check):
    """Make a test that checks every page, and names each that fails."""

    def test(subtests):
        for page in PAGES:
            with subtests.test(str(page.relative_to(ROOT))):
                check(page)

    return test


def blocks(page, language):
    text = (ROOT / page).read_text()
    return re.findall(rf'^```{language}\n(.*?)^```', text, re.DOTALL | re.MULTILINE)


@each_page
def test_docs_links_lead_somewhere(page):
    for target in re.findall(r'\]\((?!https?://)([^)\s]+)\)', page.read_text()):
        path, _, heading = target.partition('#')
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not heading or heading in headings_of(linked), target


@each_page
def test_docs_files_named_exist(page):
    text = page.read_text()
    for path in FILES.findall(text):
        # Cut where a placeholder such as {a,b}, $A or NAME follows.
        folder, _, begin = path.partition('NAME')[0].rpartition('/')
        assert list((ROOT / folder).glob(f'{begin}*')), path
    for stem in STEMS.findall(text):
        assert any(stem in known for known in CONFIGS), stem


@each_page
def test_docs_options_of_commands_exist(page):
    lines = '\n'.join(blocks(page, 'bash')).replace('\\\n', ' ').splitlines()
    for line in lines:
        # Data of configs is found from the root of the repository.
        assert not re.search(r'(^|[;&] *)cd (?!snnet_mm$)', line), line
        tool = re.search(r'(?:tools|\$T)/([\w/]+)\.(?:py|sh)', line)
        if tool is None or '.mim' in line:
            continue
        command = line.partition('#')[0].partition(tool[1])[2]
        name = re.sub('^(dist|slurm)_', '', tool[1])
        files = f'tools/{name}.py', 'snnet_mm/utils/command_line.py'
        source = ''.join((ROOT / file).read_text() for file in files)
        required = re.findall(r"'(--[\w-]+)',[^()]*required=True", source)
        assert {*required} <= {*command.split()}, line
        for option in re.findall(r'\s(--[a-z][\w-]*)', command):
            names = option, option.replace('--no-', '--')
            assert any(f"'{n}'" in source for n in names), (name, option)


def test_docs_lines_of_prose_are_short():
    long = []
    for page in (ROOT / 'docs').rglob('*.md'):
        text = page.read_text()
        prose = re.sub(r'^```.*?^```$', '', text, flags=re.DOTALL | re.MULTILINE)
        prose = re.sub(r'`[^`]*`', '', re.sub(r'\]\([^)]*\)', ']', prose))
        lines = [line for line in prose.splitlines() if not line.startswith('|')]
        long += [f'{page.stem}: {line}' for line in lines if len(line) > 120]
    assert long == []


@each_page
def test_docs_names_of_the_package_exist(page):
    named = set(re.findall(r'`(snnet_mm(?:\.\w+)+)`', page.read_text()))
    if not find_spec('transformers'):
        named = {name for name in named if '.language' not in name}
    for dotted in named:
        module, _, attribute = dotted.rpartition('.')
        try:
            importlib.import_module(dotted)
        except ImportError:
            assert hasattr(importlib.import_module(module), attribute), dotted


def test_docs_every_page_is_in_the_index():
    index = (ROOT / 'docs/README.md').read_text()
    listed = set(re.findall(r'\]\((\w+/\w+\.md)\)', index))
    pages = {str(p.relative_to(ROOT / 'docs')) for p in (ROOT / 'docs').rglob('*.md')}
    assert listed == pages - {'README.md'}


def first_column(text):
    """Names in the first cells of tables."""
    cells = re.findall(r'^\| (`.*?) \|', text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r'`([\w./]+)`', cell)}


def test_docs_reference_has_every_tool_and_part():
    page = (ROOT / 'docs/reference/names.md').read_text()
    of_tools, _, of_parts = page.partition('## Names for configs')
    tools = {
        str(path.relative_to(ROOT / 'tools'))
        for path in (ROOT / 'tools').rglob('*.*')
        if path.suffix in ('.py', '.sh')
    }
    assert first_column(of_tools) == tools | {'tools/'}
    decorated = re.compile(r'^@[A-Z_]+\.register_module\(\)\nclass (\w+)', re.MULTILINE)
    parts = {
        name
        for path in (ROOT / 'snnet_mm').glob('[!.]*/**/*.py')
        for name in decorated.findall(path.read_text())
    }
    parts |= {family.name for family in MIRRORED.values()}
    assert len(parts) > 40
    assert first_column(of_parts) == parts | {'type'}


def test_joint_training_page_config_for_other_data(tmp_path):
    snippet, path = (
        blocks('docs/tutorials/joint_training.md', 'python')[2],
        tmp_path / 'own.py',
    )
    path.write_text(snippet)
    cfg = load_config(path)
    base = load_config('snnet_mm::' + re.search(r"'/(\S+\.py)'", snippet)[1])
    dataset = cfg.train_dataloader.dataset
    assert dataset.data_root == cfg.test_dataloader.dataset.data_root == 'data/streets'
    assert dataset.data_prefix == base.train_dataloader.dataset.data_prefix
    assert dataset.metainfo.classes == ('road', 'car', 'person', 'other')
    assert cfg.model.decode_head.num_classes == 4
    (fast, slow), anchors = cfg.model.backbone.anchors, base.model.backbone.anchors
    assert fast.init_cfg.checkpoint == 'work_dirs/my_fast/iter_1500.pth'
    assert (slow.arch, slow.init_cfg.prefix) == (anchors[1].arch, 'backbone.')
    assert cfg.model.decode_head.init_cfg.checkpoint == slow.init_cfg.checkpoint
    # It has the hooks of a safe training already, with nothing left to put in.
    assert {'exact_resume', 'training_check', 'checkpoint'} <= {*cfg.default_hooks}
    assert make_safe(cfg) == []


@pytest.fixture(scope='module', autouse=True)
def extensions():
    """What the page about extending defines, registered; returns its family."""
    package, namespace = MIRRORED['mmpretrain.VAN'], {}
    for snippet in blocks('docs/how_to/extending.md', 'python'):
        exec(snippet, namespace)
    own, MIRRORED['mmpretrain.VAN'] = MIRRORED['mmpretrain.VAN'], package
    yield own
    MODELS._module_dict.pop('OwnVAN')
    MODELS._module_dict.pop('GatedStitchingLayer')
    MODELS._module_dict.pop('MixingStitchingLayer')
    MODELS._module_dict.pop('HalvesNet')
    TASK_UTILS._module_dict.pop('CheapOftenSampler')
    TASKS.pop()
    DIRECTIONS.pop(KEY_METRICS.pop())


def test_extending_page_task():
    task = task_of(type('CountingModel', (torch.nn.Module,), {})())
    assert task.name == 'counting'
    assert metric_directions(['count_error']) == dict(count_error='lower')


@torch.no_grad()
def test_tables_of_backbones_are_those_of_the_registry():
    for package in ('mmdet', 'mmpretrain', 'mmseg'):
        pytest.importorskip(f'{package}.models')
    for page, table in supported.tables().items():
        assert supported.written(page) == table, 'python tests/helpers/supported.py'


def test_anchors_page_backbones_of_mm():
    pytest.importorskip('mmseg.models')
    snippets = blocks('docs/how_to/anchors.md', 'python')
    (snippet,) = [text for text in snippets if "'MMSegViT'" in text]
    config = eval(snippet.replace('512', '64').replace('num_layers=12', 'num_layers=6'))
    config['out_indices'] = (2, 5)
    backbone = MODELS.build(config).eval()
    images = torch.randn(1, 3, 64, 64)
    maps = backbone(images)
    net = backbone.anchors[1].net
    net.out_indices = [2, 5]
    for a, b in zip(maps, net(images), strict=True):
        assert a.equal(b)
    assert len(backbone.space) > 2


@torch.no_grad()
def test_extending_page_anchor_family(extensions, monkeypatch):
    pytest.importorskip('mmpretrain.models')
    monkeypatch.setitem(MIRRORED, 'mmpretrain.VAN', extensions)
    settings = dict(type='mmpretrain.VAN', out_indices=(0, 1, 2, 3), arch=VAN)
    anchor = disturb(MODELS.build(dict(type='OwnVAN', net=settings)))
    net, images = anchor.net, torch.randn(2, 3, 64, 64)
    net.eval()
    for a, b in zip(anchor(images), net(images), strict=True):
        assert a.equal(b)
    levels = {n: anchor.layer_depth(f'net.{n}')[0] for n, _ in net.named_parameters()}
    starts = dict(patch_embed1=0, norm1=2, patch_embed2=3, norm2=3, patch_embed3=4)
    starts |= dict(norm3=4, patch_embed4=5, norm4=5)
    for name, level in starts.items():
        assert {v for n, v in levels.items() if n.startswith(name)} == {level}, name
    assert levels['blocks1.1.norm1.weight'] == 2


@pytest.mark.parametrize(
    ('layer', 'exported'),
    [
        (dict(type='GatedStitchingLayer'), dict(type='StitchingLayer')),
        (dict(type='MixingStitchingLayer', kernel=5),) * 2,
        (dict(type='PrefixStitchingLayer', num_prefix=1),) * 2,
    ],
    ids=lambda layer: layer['type'],
)
@torch.no_grad()
def test_extending_page_stitching_layers_are_exported(layer, exported):
    cfg = small('narrow')
    cfg.model.backbone.stitching_layer = layer
    model = build_disturbed(cfg)
    images, costs = torch.randn(1, 3, 64, 64), cost_table(model)
    for i in (2, 8):
        found, single = single_stitch(cfg, model, i)
        layers = found.model.backbone.stitching_layers
        assert layers['0to1_0'] == dict(exported, in_dim=8, out_dim=12)
        maps = model.backbone(images), single.backbone(images)
        torch.testing.assert_close(*maps, rtol=1e-5, atol=1e-5)
        assert sum(p.numel() for p in single.parameters()) == costs[i].params


def test_extending_page_stitching_layer(build_snnet):
    net = build_snnet(stitching_layer=dict(type='GatedStitchingLayer')).eval()
    layer, tokens = net.stitching_layers['0to1_0'], torch.randn(2, 5, 8)
    torch.testing.assert_close(layer.merged()(tokens), layer(tokens))
    before = layer.weight.clone()
    fit_stitching_layers(net, [torch.randn(2, 3, 32, 32)])
    assert not layer.weight.equal(before)


def test_extending_page_space_and_sampler(build_vit):
    anchors = [build_vit(8, 4), build_vit(12, 6)]
    layer = dict(type='StitchingLayer')
    net = MODELS.build(dict(type='HalvesNet', anchors=anchors, stitching_layer=layer))
    assert net.space.describe(net.space[2]) == 'fast[0:2] > slow[3:6]'
    images = torch.randn(1, 3, 32, 32)
    net.eval().set_stitch(2)
    states = states_on_route(net, net.space[2], images)
    assert net(images).tokens.equal(states[1, 5].tokens)

    costs = cost_table(net, (32, 32))
    assert costs[0].flops < costs[2].flops < costs[1].flops
    config = dict(type='CheapOftenSampler', power=2, costs=costs, space=net.space)
    sampler = TASK_UTILS.build(config)
    drawn = [sampler.sample(i)[0] for i in range(2000)]
    weights = [costs[i].flops ** -2 for i in range(3)]
    for i, weight in enumerate(weights):
        assert drawn.count(i) / 2000 == pytest.approx(weight / sum(weights), abs=0.03)
