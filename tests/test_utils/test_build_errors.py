import pytest
from mmengine.registry import MODELS

from snnet_mm.utils import explain_builds


def part(error=None, **_):
    raise error


@pytest.mark.parametrize(
    ('config', 'words'),
    [
        (dict(type='PlainViT', a=1), r"PlainViT .*'a'.*\(config key: Plain"),
        (dict(type='SNNetV2'), 'SNNetV2 .* is not in the'),
        (dict(type=part, error=AssertionError('odd')), 'part .*: AssertionError odd'),
        (dict(type=part, error=ValueError('no images')), 'part .*no images'),
    ],
)
def test_explain_builds_names_the_part(config, words):
    with pytest.raises(ValueError, match=words), explain_builds():
        MODELS.build(config)


@pytest.mark.parametrize(
    'error', [ValueError('x=1 is invalid (config key: x)'), OSError('a'), KeyError('a')]
)
def test_explain_builds_other_errors_stay_as_they_are(error):
    built = not isinstance(error, KeyError)
    with pytest.raises(type(error)) as raised, explain_builds():
        MODELS.build(dict(type=part, error=error)) if built else part(error)
    assert raised.value is error
