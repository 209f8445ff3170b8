"""Commands that follow the making of an elastic network."""

import shlex
from pathlib import Path

import pytest
from torch import nn

from snnet_mm.elastic.report import next_commands
from snnet_mm.models import ElasticBackbone

VIT = dict(type='PlainViT', arch=dict(embed_dims=8, depth=3, num_heads=2), img_size=32)
RESNET = dict(type='TimmStageAnchor', model='resnet10t')


class BaseSegmentor(nn.Module):
    """A model whose task is known by the name of its class."""

    def __init__(self, anchor):
        super().__init__()
        self.backbone = ElasticBackbone([anchor], chains=[])
        self.decode_head = nn.Identity()


class BaseClassifier(BaseSegmentor):
    """The same of another task."""


@pytest.mark.parametrize(
    ('model', 'anchor', 'verify', 'more', 'page'),
    [
        (BaseSegmentor, VIT, True, '--precision fp32 int8 --verify-on val', True),
        (BaseSegmentor, RESNET, True, '--verify-on val', True),
        (BaseClassifier, VIT, False, '--precision fp32 int8', False),
    ],
)
def test_next_commands_are_those_that_the_model_supports(
    model, anchor, verify, more, page, monkeypatch
):
    monkeypatch.chdir(Path(__file__).parents[2])
    found = next_commands(Path('my folder'), '1G', model(anchor), verify)
    test, export, *web = map(shlex.split, found)
    files = ['my folder/elastic.py', 'my folder/elastic.pth']
    known = ['--results', 'my folder/stitches.json']
    assert test == ['python', 'tools/test.py', *files, '--budget', '1G', *known]
    wanted = ['python', 'tools/export_stitch.py', *files, '--stitch-id', 'pareto']
    assert export == [*wanted, *known, *more.split(), '--out', 'my folder/bundle']
    wanted = ['python', 'tools/web_demo.py', 'my folder/bundle']
    assert web == [[*wanted, '--out', 'my folder/site']] * page
