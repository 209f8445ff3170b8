import pytest

CONFIG = 'configs/toy/dpt_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


def test_stitches_of_the_demo_are_drawn(run_tool, run_demo, tmp_path):
    work_dir, _ = run_demo('depth')
    checkpoint = next(work_dir.glob('dpt_snnetv2-fast-slow*/iter_3.pth'))
    out = tmp_path / 'depth.png'
    args = (CONFIG, checkpoint, '--stitch-id', '0,9,1', '--out', out)
    tool = 'analysis_tools/draw_depth.py'
    done = run_tool(tool, *args, '--images', 2, 7)
    assert done.stdout.splitlines()[-1] == f'Wrote {out}'
    assert out.read_bytes().startswith(b'\x89PNG')
    done = run_tool(tool, *args, '--images', 100, ok=False)
    assert 'images=100; allowed: 0 to 99 (option: --images)' in done.stderr


def test_models_of_another_task_are_refused(run_here, run_demo, tmp_path):
    tool, out = 'analysis_tools/draw_depth.py', tmp_path / 'depth.png'
    work_dir, _ = run_demo('seg')
    (checkpoint,) = work_dir.glob('setr-naive_snnetv2*/iter_3.pth')
    config = f'configs/toy/{checkpoint.parent.name}.py'
    with pytest.raises(ValueError, match='dataset=.* allowed: a set with depth'):
        run_here(tool, config, checkpoint, '--out', out)
    with pytest.raises(ValueError, match=f'{checkpoint} lacks 56 parameters'):
        run_here(tool, CONFIG, checkpoint, '--out', out)
    assert not out.exists()
