import hashlib
import re
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import yaml
from config_models import CONFIGS
from get_weights import download, main, names_in

from snnet_mm.utils import timm_models

CONTENT = bytes(range(256)) * 9000


@pytest.fixture
def get(monkeypatch, tmp_path, capsys):
    """Runs the tool in a folder of its own; returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr(sys, 'argv', ['get_weights.py', *map(str, args)])
        main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The folder of downloads; the list has files of another folder."""
    served = tmp_path / 'good.pth'
    served.write_bytes(CONTENT)
    entry = dict(what='a file', url=served.as_uri())
    files = {
        'good.pth': entry | dict(sha256=hashlib.sha256(CONTENT).hexdigest()[:8]),
        'unknown.pth': entry,
        'wrong.pth': entry | dict(sha256='00000000'),
        'missing.pth': entry | dict(url=(tmp_path / 'none').as_uri()),
    }
    (tmp_path / 'weights.yml').write_text(yaml.safe_dump(files))
    monkeypatch.setattr('get_weights.LIST', tmp_path / 'weights.yml')
    return tmp_path / 'checkpoints'


def test_get_weights_downloads_once_and_checks(get, files):
    printed = get('good.pth', 'unkn*')
    assert 'good.pth: checksum verified' in printed
    assert 'checksum unknown' in printed
    assert (files / 'good.pth').read_bytes() == CONTENT
    assert {p.name for p in files.iterdir()} == {'good.pth', 'unknown.pth'}
    assert 'good.pth exists: checksum verified' in get('good.pth')
    (files / 'good.pth').write_bytes(b'else')
    with pytest.raises(ValueError, match='^SHA-256 of .*; expected '):
        get('good.pth')


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('wrong.pth', '00000000'),
        ('missing.pth', 'as checkpoints/missing.pth'),
        ('other.pth', "'other.pth' matches no file of"),
    ],
)
def test_get_weights_failure_leaves_nothing(get, files, name, message):
    with pytest.raises((ValueError, OSError), match=message):
        get(name)
    assert not files.exists() or not list(files.iterdir())


class Server(BaseHTTPRequestHandler):
    """Sends less than it announces, or nothing, by the path."""

    def do_GET(self):
        if self.path == '/refused.pth':
            return self.send_error(404)
        self.send_response(200)
        if self.path == '/torn.pth':
            self.send_header('Content-Length', '99')
        else:  # a chunk that ends early
            self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        self.wfile.write(b'9\r\nabc')

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ('name', 'why'),
    [
        ('refused.pth', 'HTTP Error 404: Not Found'),
        ('torn.pth', '93 bytes are missing'),
        ('chunk.pth', 'IncompleteRead'),
        ('offline.pth', 'urlopen error'),
    ],
)
def test_get_weights_failed_download_is_no_disk_error(get, tmp_path, name, why):
    with HTTPServer(('127.0.0.1', 0), Server) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        port = 1 if name == 'offline.pth' else server.server_port
        url, path = f'http://127.0.0.1:{port}/{name}', tmp_path / 'out' / name
        with pytest.raises(ValueError) as error:
            download(url, path, None)
        server.shutdown()
    assert type(error.value) is ValueError
    assert re.match(f'{url} cannot be downloaded: .*{why}', str(error.value))
    assert f'save it as {path}' in str(error.value)
    assert not [*path.parent.iterdir()]


def test_get_weights_full_disk_is_no_failed_download(get, files, monkeypatch):
    def fsync(descriptor):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('os.fsync', fsync)
    with pytest.raises(OSError, match='good.pth cannot be written: .*No space left'):
        get('good.pth')


def test_get_weights_of_a_config(get, monkeypatch, tmp_path):
    """Files of the list and those of timm, the teacher's too, each once."""
    config = CONFIGS / 'imagenet/snnetv1-deit-ti-s-b_8xb128-50e_in1k-224x224.py'
    fetched, files = [], []
    monkeypatch.setattr(
        timm_models, 'create_timm_model', lambda name, **kwargs: fetched.append(name)
    )
    monkeypatch.setattr(
        'get_weights.download', lambda url, path, digest: files.append(path.name)
    )
    printed = get(config, 'timm://resnet18.tv_in1k')
    assert fetched == ['regnety_160.deit_in1k', 'resnet18.tv_in1k']
    assert [name.split('_')[1] for name in files] == ['tiny', 'small', 'base']
    assert "timm://resnet18.tv_in1k is in timm's cache" in printed
    own = tmp_path / 'own.py'
    own.write_text(f"_base_ = ['{config}']\nmodel = dict(teacher=None)\n")
    assert names_in(str(own)) == files


def test_weights_yml_entries(get):
    files = yaml.safe_load((CONFIGS / 'weights.yml').read_text())
    for name, entry in files.items():
        assert {*entry} <= {'what', 'url', 'sha256', 'licence'}, name
        assert entry['url'].startswith('https://'), name
        assert entry.get('sha256', '') in entry['url'], name
    assert all(name in get('--list') for name in [*files][:2])
