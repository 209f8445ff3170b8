import pytest

CONFIG = 'configs/toy/dpt_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


def test_stitches_of_the_demo_are_drawn(run_tool, run_demo, tmp_path):
    work_dir, _ = run_demo('depth')
    checkpoint = next(work_dir.glob('dpt_snnetv2-fast-slow*/iter_3.pth'))
    out = tmp_path / 'depth.png'
    args = (CONFIG, checkpoint, '--stitch-id', '0,9,1', '--out', out)
    done = run_tool('analysis_tools/draw_depth.py', *args, '--images', 2, 7)
    assert done.stdout.splitlines()[-1] == f'Wrote {out}'
    assert out.read_bytes().startswith(b'\x89PNG')


def test_models_of_another_task_are_refused(run_here, run_demo, tmp_path):
    (checkpoint,) = run_demo('seg')[0].glob('setr-naive_snnetv2*/iter_3.pth')
    args = (f'configs/toy/{checkpoint.parent.name}.py', checkpoint)
    with pytest.raises(ValueError, match='dataset=.* allowed: a set with depth'):
        run_here('analysis_tools/draw_depth.py', *args, '--out', tmp_path / 'a.png')
    assert not list(tmp_path.iterdir())
