import pytest
from labelled_folders import write, write_depth, write_masks

from snnet_mm.utils import load_config


def test_new_project_folder_becomes_a_config(run_here, tmp_path):
    write_masks(tmp_path / 'data')
    write(tmp_path / 'data/images/train/x.jpg', (40, 60))
    out = tmp_path / 'my_model.py'
    args = (tmp_path / 'data', '--out', out, '--backbone', 'vit_tiny_patch16_224')
    with pytest.raises(SystemExit):
        run_here('new_project.py', *args)
    args += '--task', 'seg'
    printed = run_here('new_project.py', *args, '--classes', 'sky,road', 'car')
    lines = [' '.join(line.split()) for line in printed.splitlines()]
    assert lines[0] == 'Task: segmentation'
    folders = '10 train (images/train, masks/train), 3 val (images/val, masks/val)'
    assert lines[1].startswith(f'Images: {folders}')
    assert '│ 0 │ sky │ 10,400 │ 33.3% │' in lines
    assert '│ 2 │ car │ 0 │ 0.0% │' in lines
    assert any('left out: x' in line for line in lines)
    assert lines[-3:] == [
        'Next:',
        f'python tools/train.py {out}',
        f'python tools/make_elastic.py {out} work_dirs/my_model/iter_600.pth',
    ]
    cfg = load_config(out)
    assert cfg.train_dataloader.dataset.metainfo.classes == ['sky', 'road', 'car']
    with pytest.raises(ValueError, match='--force'):
        run_here('new_project.py', *args)


def test_new_project_prints_depth_range(run_here, tmp_path):
    write_depth(tmp_path)
    args = '--out', tmp_path / 'my_model.py', '--task', 'depth'
    args += '--backbone', 'vit_tiny_patch16_224'
    printed = run_here('new_project.py', tmp_path, *args)
    assert 'Depth range, if files are in millimetres: 1 to 4.2 m, median' in printed
