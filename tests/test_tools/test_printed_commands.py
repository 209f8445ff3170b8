"""The commands that the tools print, one after another, in a folder with a space."""

import runpy
import shlex

import pytest
import timm
import torch
from labelled_folders import write_classes, write_coco, write_depth, write_masks
from launching import ROOT, run_tool
from old_torch import writes_onnx

import snnet_mm as sn

pytestmark = [pytest.mark.slow, pytest.mark.ops, writes_onnx]
TINY = 'test_vit'  # 6 narrow blocks
IMAGES = '.jpg', '.png'
POLYGON = [6, 4, 36, 4, 36, 24]
# Task and layout of the data by the name of the test.
LAYOUTS = {
    'seg': ('seg', write_masks),
    'depth': ('depth', write_depth),
    'cls': ('cls', write_classes),
    'coco': ('det', write_coco),
    'coco_polygons': ('det', lambda root: write_coco(root, segmentation=[POLYGON])),
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
    for noise in ('OneDL', 'NMS is not compiled', 'constant folding'):
        assert noise not in done.stdout + done.stderr
    return done.stdout.splitlines()


def following(lines):
    """Return the commands after the word ``Next:``."""
    (begin,) = (i for i, line in enumerate(lines) if line.startswith('Next:'))
    first = lines[begin].removeprefix('Next:').strip()
    return [*filter(None, [first]), *(line.strip() for line in lines[begin + 1 :])]


@pytest.mark.parametrize('task, write', LAYOUTS.values(), ids=LAYOUTS)
def test_tools_run_the_commands_that_they_print(task, write, weights, folder, tmp_path):
    data = tmp_path / 'my data'
    write(data)
    tool = shlex.quote(str(ROOT / 'tools' / 'new_project.py'))
    options = '--task', task, '--backbone', TINY, '--weights', weights
    args = shlex.join(map(str, (data, '--out', 'my model.py', *options)))
    train, _ = following(run(folder, f'python {tool} {args}'))
    config = folder / 'my model.py'
    config.write_text(config.read_text().replace('\niters = 600', '\niters = 2'))
    (elastic,) = following(run(folder, train))
    test, export, *web = following(run(folder, f"{elastic} --plan '1:0/0 3:0/0'"))
    work = folder / 'work_dirs' / 'my model_elastic'
    assert (work / 'predictions.png').stat().st_size
    assert "'" in test  # quoted
    run(folder, test)
    (serve,) = following(run(folder, export))
    assert serve.endswith(shlex.quote('work_dirs/my model_elastic/bundle'))
    runtime = sn.Runtime(work / 'bundle')
    assert runtime.stitches.keys() <= {0, 1}  # the front of a hardly trained network
    assert len(web) == (task == 'seg')
    for page in web:
        scripts = write_scripts(tmp_path)
        run(folder, f'{page} --onnxruntime-web {shlex.quote(str(scripts))}')
        assert (work / 'site' / 'index.html').exists()
    check_drawing(folder, work, data)


def check_drawing(folder, work, data):
    """Draw predictions of a test, and of a folder of images."""
    model = [str(work / f'elastic.{end}') for end in ('py', 'pth')]
    files = [p for p in sorted(data.rglob('*')) if p.suffix in IMAGES]
    images = next(p.parent for p in files if 'depth' not in p.parts)
    test = 'python', str(ROOT / 'tools/test.py'), *model, '--show-dir', 'shown'
    run(folder, shlex.join(test))
    sn.predict(sn.load(*model, device='cpu'), images, out_dir=folder / 'demo')
    for drawn in ('shown', 'demo'):
        suffixes = {path.suffix for path in (folder / drawn).rglob('*')}
        assert suffixes & {*IMAGES}, drawn


def write_scripts(tmp_path):
    """Stand in for the npm package, which needs a network."""
    scripts = runpy.run_path(str(ROOT / 'tools' / 'web_demo.py'))['SCRIPTS']
    folder = tmp_path / 'npm package'
    folder.mkdir()
    for name in scripts:
        (folder / name).write_text('')
    return folder
