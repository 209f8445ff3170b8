import filecmp
import shutil
from pathlib import Path

import pytest
import torch
from manifests import write_bundle
from mmengine.config import Config
from trained_toys import write_trained

import snnet_mm as sn
from snnet_mm.utils.timm_models import licence_of

pytest.importorskip('huggingface_hub')
from snnet_mm import hub  # noqa: E402


@pytest.fixture
def uploaded(monkeypatch, tmp_path):
    """The folder of the only repository, as the hub's cache holds it: with links."""
    snapshot, blobs = tmp_path / 'hub/snapshots/abc', tmp_path / 'hub/blobs'

    class Api:
        def create_repo(self, repo_id, exist_ok):
            assert (repo_id, exist_ok) == ('owner/name', True)
            snapshot.mkdir(parents=True, exist_ok=True)

        def upload_folder(self, repo_id, folder_path, revision='main'):
            shutil.copytree(folder_path, blobs, dirs_exist_ok=True)
            for path in blobs.iterdir():
                (snapshot / path.name).unlink(missing_ok=True)
                (snapshot / path.name).symlink_to(f'../../blobs/{path.name}')
            return f'{repo_id}/{revision}'

    monkeypatch.setattr(hub, 'HfApi', Api)
    return snapshot


def test_upload_bundle_is_read_from_cache(tmp_path, monkeypatch, uploaded):
    monkeypatch.setattr('snnet_mm.runtime.runtime.open_graph', lambda *_: None)
    source = tmp_path / 'bundle'
    source.mkdir()
    manifest = write_bundle(source)
    names = {path.name for path in source.iterdir()}
    (source / 'notes.txt').write_text('of the author alone')
    assert hub.upload(source, 'owner/name', revision='a') == 'owner/name/a'
    assert {path.name for path in uploaded.iterdir()} == {*names, 'README.md'}
    assert all(filecmp.cmp(source / n, uploaded / n, shallow=False) for n in names)
    runtime = sn.Runtime(uploaded)
    assert runtime.manifest == manifest
    runtime.set_stitch(7)
    card = (uploaded / 'README.md').read_text()
    assert '| stitch | GFLOPs | precision | mIoU | lost | ms |' in card
    assert '| 7: a route | 0.00 | fp32 | 41 | 0.50 | 3.50 |' in card
    assert '| fast | unknown | unknown |' in card
    assert 'license:' not in card
    assert str(tmp_path) not in card
    next(source.glob('*fp32.onnx')).write_bytes(b'other')
    with pytest.raises(ValueError, match='the file is damaged'):
        hub.upload(source, 'owner/name')


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


@pytest.mark.slow
def test_upload_elastic_model_is_whole(tmp_path, uploaded):
    """With the weights of the network that its checkpoint only names."""
    files, folder = write_trained('seg', tmp_path), tmp_path / 'elastic'
    cfg = Config.fromfile(files[0])
    cfg.model.backbone.init_cfg = dict(checkpoint='timm://vit_base_patch16_224.mae')
    cfg.dump(files[0])
    options = dict(plans=['2:0/64'], num_images=2, device='cpu')
    sn.make_elastic(*files, folder, **options, say=lambda line: None)
    saved = sn.load(folder, device='cpu')
    hub.upload(folder, 'owner/name')
    for path in files:
        Path(path).unlink()
    weights = saved.state_dict()
    for name, value in sn.load(uploaded, device='cpu').state_dict().items():
        assert torch.equal(value, weights[name]), name
    card = (uploaded / 'README.md').read_text()
    assert '| timm://vit_base_patch16_224.mae | cc-by-nc-4.0 |' in card
    assert '\nlicense: cc-by-nc-4.0\n' in card
    row = sn.stitches(saved)[1]
    flops, score = row['costs']['flops'] / 1e9, row['scores']['mIoU']
    assert f'| 1: {row["route"]} | {flops:.2f} | ' in card
    assert f' {score:.2f} |' in card
