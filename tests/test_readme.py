import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS
from PIL import Image

import snnet_mm as sn
from snnet_mm.costs import cost_table
from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import default_step, group_by_cost

README = Path(__file__).parents[1] / 'README.md'
STOCK_PAGE = README.parent / 'docs' / 'tutorials' / 'stock_config.md'
SPACES = README.parent / 'docs' / 'reference' / 'spaces.md'
TOY = 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


def python_of(page):
    return re.findall(r'```python\n(.*?)```', page.read_text(), re.DOTALL)


def build(cfg, device='meta'):
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    with torch.device(device):
        return MODELS.build(cfg['model'])


def test_stock_config_page_makes_stitched_model(tmp_path):
    own = tmp_path / 'own.py'
    own.write_text(python_of(STOCK_PAGE)[0])
    assert python_of(README)[0] == own.read_text()
    cfg = Config.fromfile(own)
    model, size = build(cfg), (512, 512)
    flops = cost_table(model, size).column('flops')
    assert [head.in_channels for head in model.auxiliary_head] == [1024] * 3
    assert len(flops) == len(find_stitched_backbone(model).space) == 134
    assert len(group_by_cost(flops, default_step(flops))) == 13  # as in the paper
    assert '8xb2' in re.search(r'setr_vit\S+', own.read_text())[0]
    assert cfg.auto_scale_lr == dict(base_batch_size=16)


@pytest.mark.parametrize('index', range(5))
def test_stock_config_page_merges_the_stitched_base(index, tmp_path):
    own = tmp_path / 'own.py'
    own.write_text(text := python_of(STOCK_PAGE)[index])
    (stock,) = re.findall(r"__import__\('(\w+)'\).*\n    \+ '(.*)'", text)
    stock = Config.fromfile(import_module(stock[0]).__path__[0] + stock[1])
    base = Config.fromfile(README.parent / 'configs/_base_/stitched.py')
    cfg, hooks = Config.fromfile(own), dict(stock.default_hooks)
    hooks['checkpoint'] = dict(hooks['checkpoint'], max_keep_ckpts=2)
    assert cfg.default_hooks == {**hooks, **base.stitch_hooks}
    assert [cfg.val_cfg, cfg.test_cfg] == base.stitch_loops
    assert cfg.find_unused_parameters
    assert not {'stitch_hooks', 'stitch_loops'} & {*cfg}
    assert cfg.model.backbone.type == 'SNNetv2'


def test_spaces_page_comments_are_true():
    namespace, said = {}, 0
    for line in python_of(SPACES)[0].splitlines():
        code, _, comment = line.partition('  # ')
        if '=' in code or code.startswith('from'):
            exec(code, namespace)
        elif code:
            assert repr(eval(code, namespace)) == comment
            said += 1
    assert said == 11


def test_spaces_page_backbones():
    first, second = (Config.fromstring(t, '.py') for t in python_of(SPACES)[1:3])
    three, two = (build(dict(model=cfg.model.backbone)) for cfg in (first, second))
    assert (len(three.space), len(two.space)) == (267, 13)
    far = [m for n, m in three.stitching_layers.items() if n.startswith('0to2')]
    sizes = [sum(p.numel() for p in m.parameters()) for m in (*far, three)]
    assert (round(sum(sizes[:-1]) / 1e6, 1), round(sizes[-1] / 1e6)) == (5.0, 443)
    trained = {n.split('.')[0] for n, p in two.named_parameters() if p.requires_grad}
    assert trained == {'stitching_layers'}
    assert 'decode_head' in second.optim_wrapper.paramwise_cfg.custom_keys


def test_training_page_configs(tmp_path):
    models, base = [], repr(str(README.parent / 'configs' / TOY))
    snippets = python_of(README.parent / 'docs/how_to/training.md')
    for i, text in enumerate(text for text in snippets if '_base_' in text):
        path = tmp_path / f'{i}.py'
        path.write_text(re.sub(r"'./my_\w+.py'", lambda _: base, text))
        cfg = Config.fromfile(path)
        models.append(build(cfg))
    names = [type(model).__name__ for model in models]
    segmentors = ['EncoderDecoder'] * 2
    assert names == ['DistillationWrapper', 'SandwichWrapper', *segmentors]
    assert [p.in_channels for p in models[3].decode_head.parts] == [32, 48]
    assert cfg.model.backbone.anchors[1].init_cfg.prefix == 'backbone.'
    assert models[2].backbone.anchors[1].blocks[7].attn.qkv.lora_A.shape == (16, 48)


def test_readme_first_lines_run(tmp_path, monkeypatch):
    image = Image.fromarray(np.zeros((64, 64, 3), np.uint8))
    image.save(tmp_path / 'photo.jpg')
    cfg = Config.fromfile(
        README.parent / 'configs' / TOY.replace('snnetv2-fast-slow', 'vit-fast')
    )
    cfg.model.decode_head.update(num_convs=1, channels=8)  # most FLOPs in the backbone
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        loader.dataset.update(num_scenes=4)
    cfg.dump(tmp_path / 'my_model.py')
    torch.save(build(cfg, 'cpu').state_dict(), tmp_path / 'my_model.pth')
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(python_of(README)[1], namespace)
    model = namespace['model']
    flops = [row['costs']['flops'] for row in sn.stitches(model)]
    active = find_stitched_backbone(model).active_stitch.id
    assert len(flops) == 5
    assert flops[active] <= flops[0] / 2
    assert [p.name for p in (tmp_path / 'painted').rglob('*.jpg')] == ['photo.jpg']
