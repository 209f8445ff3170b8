import pytest

from snnet_mm.stitching import StitchTable


def test_test_chooses_stitch_by_results_and_budget(run_here, narrow, tmp_path):
    results = StitchTable.read(narrow / 'stitches.json')
    (best, other), flops = (2, 4), results.column('flops')
    assert results.score(results[best]) > results.score(results[other])
    budget = f'{max(flops[best], flops[other]) / 1e9}G'
    args = '--budget', budget, '--results', narrow / 'stitches.json', '--limit', 2
    shown = '--show-dir', tmp_path / 'show', '--work-dir', tmp_path
    model = narrow / 'config.py', narrow / 'weights.pth'
    run_here('test.py', *model, *args, *shown, '--lower-is-better', 'none')
    written = StitchTable.read(next(tmp_path.glob('*/stitches.json')))
    assert [*written] == [best]
    assert written.shared('num_images') == 2
    pictures = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob('*.png')}
    folder = f'show/stitch_{best}/toy_scenes/val'
    wanted = {f'{folder}/{name}.png' for name in ('000000', '000002')}
    assert {p for p in pictures if p.startswith('show')} == wanted


@pytest.mark.slow
def test_test_sizes_have_reports_and_a_joint_one(run_here, narrow, tmp_path):
    model = narrow / 'config.py', narrow / 'weights.pth'
    args = *model, '--stitch-id', '0,1', '--limit', 2, '--work-dir', tmp_path
    run_here('test.py', *args, '--sizes', '32x48', '64x64')
    joint = StitchTable.read(tmp_path / 'sizes/stitches.json')
    for size in ((32, 48), (64, 64)):
        folder = tmp_path / 'sizes/{}x{}'.format(*size)
        alone = StitchTable.read(folder / 'stitches.json')
        assert [*alone] == [0, 1]
        assert joint.at(size).rows == alone.rows
        assert (folder / 'per_image.npz').exists()
    assert (tmp_path / 'sizes/pareto.png').exists()
