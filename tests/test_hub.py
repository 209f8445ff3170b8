import filecmp
import shutil

import pytest
import torch
from manifests import MANIFEST, write_bundle
from mmengine.config import Config
from trained_toys import write_trained

import snnet_mm as sn
from snnet_mm.utils.timm_models import licence_of

pytest.importorskip('huggingface_hub')
from snnet_mm import hub  # noqa: E402


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
    assert 'Files were compared on 2 test images.' in card
    # The hub's cache links to blobs beside the snapshot.
    snapshot, blobs = tmp_path / 'snapshots' / 'abc', tmp_path / 'blobs'
    snapshot.mkdir(parents=True)
    shutil.copytree(out, blobs)
    for number, name in enumerate(sorted(names)):
        (blobs / name).rename(blobs / str(number))
        (snapshot / name).symlink_to(f'../../blobs/{number}')
    monkeypatch.setattr(hub, 'snapshot_download', lambda *_, **__: str(snapshot))
    cached = hub.HubRuntime.from_pretrained('owner/name')
    assert (cached.manifest, cached.folder) == (manifest, snapshot)
    cached.set_stitch(7)
    # A damaged file is not handed on.
    next(source.glob('*fp32.onnx')).write_bytes(b'other')
    with pytest.raises(ValueError, match='the file is damaged'):
        hub.HubRuntime(out)._save_pretrained.__func__(read_of(source, read), out)


def test_arguments_are_not_saved(tmp_path, monkeypatch):
    """Paths of the author, which would also be passed again on loading."""
    monkeypatch.setattr('snnet_mm.runtime.runtime.open_graph', lambda *_: None)
    source, out = tmp_path / 'bundle', tmp_path / 'saved'
    source.mkdir()
    manifest = write_bundle(source)
    hub.HubRuntime(str(source), threads=2).save_pretrained(str(out))
    assert not (out / 'config.json').exists()
    for path in out.glob('*.*'):
        assert str(tmp_path).encode() not in path.read_bytes(), path
    read = hub.HubRuntime.from_pretrained(str(out))
    assert read.manifest == manifest
    assert read.threads is None


def read_of(folder, runtime):
    runtime.folder = folder
    return runtime


def test_a_card_says_only_what_is_known():
    plain = dict(MANIFEST, ranked_by=None)
    card = hub.card_of(plain)
    assert '| 0: a route | 0.00 | fp32 |  | 0.50 [-0.60, 0.10] | 3.5 |' in card
    assert '| fast | unknown | unknown |' in card
    assert 'license:' not in card
    anchors = [dict(a, weights='mae.pth', licence='mit') for a in MANIFEST['anchors']]
    card = hub.card_of(dict(MANIFEST, anchors=anchors))
    assert '| fast | mae.pth | mit |' in card
    assert '\nlicense: mit\n' in card
    anchors[0]['licence'] = None
    assert 'license:' not in hub.card_of(dict(MANIFEST, anchors=anchors))


def test_licences_of_weights():
    pytest.importorskip('timm')
    for checkpoint, licence in {
        'timm://vit_base_patch16_224.mae': 'cc-by-nc-4.0',
        'timm://vit_small_patch14_dinov2.lvd142m': 'apache-2.0',
        'timm://none': None,
        'checkpoints/mae_finetuned_vit_base.pth': 'cc-by-nc-4.0',
        'checkpoints/my_own.pth': None,
        None: None,
    }.items():
        assert licence_of(checkpoint) == licence


def test_an_elastic_model_is_saved_whole(tmp_path):
    """With the weights of the network that its checkpoint only names."""
    files, folder = write_trained('seg', tmp_path), tmp_path / 'elastic'
    cfg = Config.fromfile(files[0])
    cfg.model.backbone.init_cfg = dict(checkpoint='timm://vit_base_patch16_224.mae')
    cfg.dump(files[0])
    options = dict(plans=['2:0/64'], num_images=6, device='cpu')
    sn.make_elastic(*files, folder, **options, say=lambda line: None)
    saved = hub.HubModel(str(folder), device='cpu')
    saved.save_pretrained(tmp_path / 'saved')
    for path in files:
        path.unlink()
    read = hub.HubModel.from_pretrained(str(tmp_path / 'saved'), device='cpu', stitch=1)
    weights = saved.model.state_dict()
    for name, value in read.model.state_dict().items():
        assert torch.equal(value, weights[name]), name
    card = (tmp_path / 'saved/README.md').read_text()
    assert '| timm://vit_base_patch16_224.mae | cc-by-nc-4.0 |' in card
    assert '\nlicense: cc-by-nc-4.0\n' in card
    row = sn.stitches(saved.model)[1]
    score = row['scores']['mIoU']
    assert f'| 1: {row["route"]} | {row["costs"]["flops"] / 1e9:.2f} |' in card
    assert f' {score:.2f} |' in card
