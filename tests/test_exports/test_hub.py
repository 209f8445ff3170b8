import filecmp

import pytest
from manifests import MANIFEST, write_bundle

hub = pytest.importorskip('snnet_mm.exports.hub', reason='huggingface_hub is missing')


def test_a_bundle_is_saved_with_a_card_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr('snnet_mm.runtime.runtime.open_graph', lambda *_: None)
    source, out = tmp_path / 'bundle', tmp_path / 'saved'
    source.mkdir()
    manifest = write_bundle(source)
    hub.HubRuntime(source, threads=2).save_pretrained(out)
    names = {path.name for path in source.iterdir()}
    assert names <= {path.name for path in out.iterdir()}
    assert all(filecmp.cmp(source / n, out / n, shallow=False) for n in names)
    read = hub.HubRuntime.from_pretrained(out, threads=1)
    assert read.manifest == manifest
    assert read.threads == 1
    card = (out / 'README.md').read_text()
    assert '| 7: a route | 0.00 | fp32 | 41.00 | 0.50 [-0.60, 0.10] | 3.5 |' in card
    assert 'Metrics: 2 test images.' in card
    # A damaged file is not handed on.
    next(source.glob('*fp32.onnx')).write_bytes(b'other')
    with pytest.raises(ValueError, match='the file is damaged'):
        hub.HubRuntime(out)._save_pretrained.__func__(read_of(source, read), out)


def read_of(folder, runtime):
    runtime.folder = folder
    return runtime


def test_a_card_says_only_what_is_known():
    plain = dict(MANIFEST, ranked_by=None)
    card = hub.card_of(plain)
    assert '| 0: a route | 0.00 | fp32 |  | 0.50 [-0.60, 0.10] | 3.5 |' in card
    assert 'the manifest does not hold them' in card
