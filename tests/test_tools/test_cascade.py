import pytest
import torch
from tiny import TOY

from snnet_mm.inference.init_model import init_model
from snnet_mm.stitching import StitchResults


@pytest.mark.slow
def test_a_cascade_begins_and_ends_as_its_models(run_tool, tmp_path):
    options = ('--cfg-options', 'test_dataloader.dataset.num_scenes=4')
    alone = {}
    for name in ('fast', 'slow'):
        config = TOY.with_name(TOY.name.replace('snnetv2-fast-slow', f'vit-{name}'))
        model = init_model(config, None, device='cpu')
        torch.save(dict(state_dict=model.state_dict()), tmp_path / f'{name}.pth')
        model = config, tmp_path / f'{name}.pth'
        run_tool('test.py', *model, '--work-dir', tmp_path / name, *options)
        alone[name] = *model, tmp_path / name / 'results.json'
    fast, slow = (StitchResults.read(found[-1]).stitches[0] for found in alone.values())
    files = alone['fast'][-1], alone['slow'][-1]
    command = ('research/cascade.py', *alone['fast'][:2], *files)
    run_tool(*command, '--out', tmp_path / 'cascade', *options)
    rows = StitchResults.read(tmp_path / 'cascade' / 'stitches.json').stitches
    assert [r.flops for r in rows] == [
        round(fast.flops + i / 10 * slow.flops) for i in range(11)
    ]
    assert rows[0].metrics['mIoU'] != pytest.approx(rows[-1].metrics['mIoU'], abs=0.1)
    for row, whole in ((rows[0], fast), (rows[-1], slow)):
        assert row.metrics['mIoU'] == pytest.approx(whole.metrics['mIoU'], abs=0.006)
