"""The commands that the tools print, one after another, in a folder with a space."""

import runpy
import shlex

import pytest
import timm
import torch
from labelled_folders import (
    write_classes,
    write_coco,
    write_depth,
    write_masks,
    write_yolo,
)
from launching import ROOT, run_tool
from old_torch import writes_onnx

import snnet_mm as sn

pytestmark = [pytest.mark.slow, pytest.mark.ops, writes_onnx]
TINY = 'test_vit'  # 6 narrow blocks
POLYGON = '1 0.1 0.1 0.9 0.1 0.9 0.9'
# Task and layout of the data by the name of the test.
LAYOUTS = {
    'seg': ('seg', write_masks),
    'depth': ('depth', write_depth),
    'cls': ('cls', write_classes),
    'coco': ('det', write_coco),
    'yolo_polygons': ('det', lambda root: write_yolo(root, POLYGON)),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a space in its name."""
    folder = tmp_path / 'my work'
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp('my weights') / 'vit.pth'
    torch.save(timm.create_model(TINY, num_classes=0).state_dict(), path)
    return path


def run(folder, command):
    """Run a command as a shell in the folder would; return its lines."""
    python, tool, *args = shlex.split(command)
    assert python == 'python'
    tool = (folder / tool).resolve()
    done = run_tool(tool.relative_to(ROOT / 'tools'), *args, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for noise in ('OneDL', 'NMS is not compiled', 'constant folding'):
        assert noise not in done.stdout + done.stderr
    return done.stdout.splitlines()


def command(tool, *args):
    return shlex.join(map(str, ('python', ROOT / 'tools' / tool, *args)))


def following(lines):
    """Return the commands after the word ``Next:``."""
    (begin,) = (i for i, line in enumerate(lines) if line.startswith('Next:'))
    first = lines[begin].removeprefix('Next:').strip()
    return [*filter(None, [first]), *(line.strip() for line in lines[begin + 1 :])]


@pytest.mark.parametrize('task, write', LAYOUTS.values(), ids=LAYOUTS)
def test_printed_commands(task, write, weights, folder, tmp_path):
    data = tmp_path / 'my data'
    write(data)
    options = '--task', task, '--backbone', TINY, '--weights', weights
    args = data, '--out', 'my model.py', *options
    train, _ = following(run(folder, command('new_project.py', *args)))
    config = folder / 'my model.py'
    config.write_text(config.read_text().replace('\niters = 600', '\niters = 2'))
    (elastic,) = following(run(folder, train))
    (test,) = following(run(folder, f"{elastic} --plan '1:0/0 3:0/0 5:0/0'"))
    work = folder / 'work_dirs' / 'my model_elastic'
    assert (work / 'predictions.png').stat().st_size
    assert "'" in test  # quoted
    run(folder, test)
    options = '--precision', 'fp32', 'int8', '--verify-on', 'val', '--out'
    known = shlex.split(test)[2:]  # model, stitches and results
    export = command('export_stitch.py', *known, *options, work / 'bundle')
    (serve,) = following(run(folder, export))
    assert serve.endswith(shlex.quote(str(work / 'bundle')))
    runtime = sn.Runtime(work / 'bundle')
    assert runtime.stitches.keys() <= {0, 1}  # the front of a hardly trained network
    if task == 'seg':
        options = '--out', work / 'site', '--onnxruntime-web', write_scripts(tmp_path)
        run(folder, command('web_demo.py', work / 'bundle', *options))
        assert (work / 'site' / 'index.html').exists()
    check_drawing(folder, work, data)


def check_drawing(folder, work, data):
    """Draw predictions with all tools that do so."""
    model = [str(work / f'elastic.{end}') for end in ('py', 'pth')]
    files = [p for p in sorted(data.rglob('*')) if is_image(p)]
    images = next(p.parent for p in files if 'depth' not in p.parts)
    drawing = {
        'test.py': [*model, '--show-dir', 'shown'],
        'image_demo.py': [
            *(images, *model, '--stitch-id', '0,1', '--score-thr', 0),
            *('--out-dir', 'demo'),
        ],
    }
    for tool, args in drawing.items():
        run(folder, command(tool, *args))
    sn.predict(sn.load(work, device='cpu'), str(images), out_dir='drawn')
    for drawn in ('shown', 'demo', 'drawn'):
        assert [*filter(is_image, (folder / drawn).rglob('*'))], drawn


def is_image(path):
    return path.suffix in ('.jpg', '.png')


def write_scripts(tmp_path):
    """Stand in for the npm package, which needs a network."""
    scripts = runpy.run_path(str(ROOT / 'tools' / 'web_demo.py'))['SCRIPTS']
    folder = tmp_path / 'npm package'
    folder.mkdir()
    for name in scripts:
        (folder / name).write_text('')
    return folder
