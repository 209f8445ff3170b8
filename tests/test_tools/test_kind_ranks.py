import pytest

from snnet_mm.stitching import Cost, StitchTable, TwoWaySpace

# Two groups: in the first, FS beats SF, and in the second they tie. One stitch of the
# first was not tested.
FLOPS = {2: 10, 6: 10.1, 7: 10.2, 12: 10.3, 3: 40, 8: 40.1}
MIOU = {2: 3.0, 6: 1.0, 7: 2.0, 3: 5.0, 8: 5.0}


@pytest.mark.parametrize('direction', ['higher', 'lower'])
def test_ranks_are_shares_of_beaten_stitches(run_here, tmp_path, direction):
    space = TwoWaySpace([4, 8])
    kinds = {i: space[i].kind for i in MIOU}
    assert kinds == {2: 'FS', 3: 'FS', 6: 'SF', 7: 'SF', 8: 'SF'}
    costs = {i: Cost(int(f * 1e9), 1) for i, f in FLOPS.items()}
    metrics = {i: dict(mIoU=m) for i, m in MIOU.items()}
    table = StitchTable.counted(costs, (8, 8), space).with_metrics(metrics)
    path, out = tmp_path / 'stitches.json', tmp_path / 'ranks.png'
    table.ranked_by('mIoU', ['mIoU'] * (direction == 'lower')).save(path)
    lines = run_here('research/kind_ranks.py', path, '--out', out).splitlines()
    shares = '100% │ 25%' if direction == 'higher' else '0% │ 75%'
    rows = [' '.join(line.split()) for line in lines]
    assert f'│ 10.1 │ {shares} │' in rows
    assert '│ 40 │ 50% │ 50% │' in rows
    assert out.read_bytes().startswith(b'\x89PNG')
