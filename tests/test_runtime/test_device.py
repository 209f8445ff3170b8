import pytest

from snnet_mm.runtime.device import PROVIDERS, choose_provider

onnxruntime = pytest.importorskip('onnxruntime')


@pytest.mark.parametrize(
    ('names', 'expected'),
    [('cpu', 'cpu'), (('tensorrt', 'cuda', 'cpu'), 'cuda'), (['cpu', 'cuda'], 'cpu')],
)
def test_choose_provider_takes_first_installed(monkeypatch, names, expected):
    installed = [PROVIDERS['cuda'], PROVIDERS['cpu']]
    monkeypatch.setattr(onnxruntime, 'get_available_providers', lambda: installed)
    assert choose_provider(names) == expected


def test_choose_provider_never_takes_the_cpu_unasked(monkeypatch):
    installed = ['AzureExecutionProvider', PROVIDERS['cpu']]
    monkeypatch.setattr(onnxruntime, 'get_available_providers', lambda: installed)
    with pytest.raises(ValueError, match="'tensorrt,cuda' .* one of cpu,"):
        choose_provider(('tensorrt', 'cuda'))
    with pytest.raises(ValueError, match=r"provider='gpu' is invalid.*'cuda'"):
        choose_provider('gpu')
