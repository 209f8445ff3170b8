import json


def test_one_part_is_run_and_written(run_tool, tmp_path):
    script = 'analysis_tools/benchmark.py'
    done = run_tool(script, '--only', 'switch', '--out', tmp_path)
    written = json.loads((tmp_path / 'switch.json').read_text())
    rows = written['figures']['switches']
    assert [(r['model'], r['stitches']) for r in rows] == [
        ('CamVid pair', 32),
        ('DeiT3 S/L', 134),
        ('DeiT3 B/L', 134),
    ]
    assert all(r['tensor_operations'] == 0 < r['median_ms'] for r in rows)
    assert set(written['machine']) >= {'processor', 'cores', 'torch', 'threads'}
    assert 'DeiT3 S/L' in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ['switch.json']


def test_parts_that_do_not_exist(run_tool):
    done = run_tool('analysis_tools/benchmark.py', '--only', 'switch,no', ok=False)
    error = done.stderr.splitlines()[-1]
    assert error.startswith('ValueError: --only ')
    assert 'allowed are compile, controller, ' in error
