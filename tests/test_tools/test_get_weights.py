import hashlib
import http.server
import subprocess
import sys
import threading
from functools import partial

import pytest
import yaml
from config_models import CONFIGS
from get_weights import main

from snnet_mm.utils import timm_models

ROOT = CONFIGS.parent
TOOL = ROOT / 'tools' / 'get_weights.py'
CONTENT = bytes(range(256)) * 9000


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        if 'short' not in self.path:
            return super().do_GET()
        # A connection that breaks.
        self.send_response(200)
        self.send_header('Content-Length', '1000')
        self.end_headers()
        self.wfile.write(b'x' * 10)


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp('files')
    (root / 'good.pth').write_bytes(CONTENT)
    address = ('127.0.0.1', 0)
    with http.server.ThreadingHTTPServer(
        address, partial(Handler, directory=root)
    ) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{found.server_address[1]}'
        found.shutdown()


@pytest.fixture
def get(server, tmp_path):
    digest = hashlib.sha256(CONTENT).hexdigest()
    entry = dict(what='a file', url=f'{server}/good.pth')
    files = {
        'good.pth': entry | dict(sha256=digest[:8]),
        'unknown.pth': entry,
        'wrong.pth': entry | dict(sha256='00000000'),
        'short.pth': entry | dict(url=f'{server}/short.pth'),
        'missing.pth': entry | dict(url=f'{server}/missing.pth'),
    }
    (tmp_path / 'configs').mkdir()
    (tmp_path / 'tools').mkdir()
    (tmp_path / 'configs' / 'weights.yml').write_text(yaml.safe_dump(files))
    tool = tmp_path / 'tools' / TOOL.name
    tool.write_text(TOOL.read_text())

    def run(*args):
        command = [sys.executable, tool, *args]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return run


def test_files_are_downloaded_once_and_checked(get, tmp_path):
    done = get('good.pth', 'unkn*')
    assert done.returncode == 0, done.stderr
    assert 'good.pth: checksum right' in done.stdout
    assert 'checksum unknown' in done.stdout
    files = tmp_path / 'checkpoints'
    assert (files / 'good.pth').read_bytes() == CONTENT
    assert {p.name for p in files.iterdir()} == {'good.pth', 'unknown.pth'}
    again = get('good.pth')
    assert 'good.pth is there: checksum right' in again.stdout
    (files / 'good.pth').write_bytes(b'else')
    assert 'does not begin with' in get('good.pth').stderr


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('wrong.pth', 'does not begin with 00000000'),
        ('short.pth', 'Without a network, put the file of'),
        ('missing.pth', 'at checkpoints/missing.pth'),
        ('other.pth', "'other.pth' is no file of"),
    ],
)
def test_nothing_is_left_of_a_failure(get, tmp_path, name, message):
    done = get(name)
    assert done.returncode == 1
    assert message in done.stderr
    assert 'Traceback' not in done.stderr
    folder = tmp_path / 'checkpoints'
    assert not folder.exists() or not list(folder.iterdir())


def test_weights_that_a_config_starts_from(tmp_path, monkeypatch, capsys):
    """Files of the list and those of timm, the teacher's too, each once."""
    config = ROOT / 'configs/imagenet/snnetv1-deit-ti-s-b_8xb128-50e_in1k-224x224.py'
    fetched, files = [], []
    monkeypatch.setattr(
        timm_models, 'create_timm_model', lambda name, **kwargs: fetched.append(name)
    )
    monkeypatch.setattr(
        'get_weights.download', lambda url, path, digest: files.append(path.name)
    )
    argv = [str(TOOL), str(config), 'timm://resnet18.tv_in1k', '--out', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', argv)
    main()
    assert fetched == ['regnety_160.deit_in1k', 'resnet18.tv_in1k']
    sizes = 'tiny', 'small', 'base'
    assert [name.split('_')[1] for name in files] == list(sizes)
    assert "timm://resnet18.tv_in1k is in timm's cache" in capsys.readouterr().out


def test_the_list_has_all_files_that_configs_read():
    files = yaml.safe_load((ROOT / 'configs' / 'weights.yml').read_text())
    for name, entry in files.items():
        assert {*entry} <= {'what', 'url', 'sha256', 'licence'}, name
        assert entry['url'].startswith('https://'), name
        assert entry.get('sha256', '') in entry['url'], name
    done = subprocess.run(
        [sys.executable, TOOL, '--list'], capture_output=True, text=True, check=True
    )
    assert all(name in done.stdout for name in files)
    texts = [p.read_text() for p in (ROOT / 'configs').rglob('*.py')]
    texts.append((ROOT / 'configs/papers.yml').read_text())
    known = ' '.join(texts)
    for name in ('deit_3_', 'mae_', 'sam_vit', 'beitv2', 'deit_tiny', 'augreg'):
        assert any(name in file for file in files), name
        assert name in known, name
