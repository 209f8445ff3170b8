import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.runner import Runner
from small import small

from snnet_mm.costs import whole_model_cost
from snnet_mm.evaluation import evaluate_whole_model
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.stitching import StitchTable


def test_evaluate_whole_model_without_stitches_is_baseline(tmp_path):
    cfg = small('network')
    cfg.work_dir = str(tmp_path)
    cfg.test_dataloader.dataset.num_scenes = 3
    # Windows are cut from larger images: costs are those of a stitched model's.
    cfg.model.data_preprocessor.size = (48, 32)
    runner = Runner.from_cfg(cfg)
    evaluate_whole_model(runner)
    results = StitchTable.read(tmp_path / 'results.json')
    (row,) = results.rows
    cost, _ = whole_model_cost(runner.model, (48, 32))
    assert results.input_size == (48, 32)
    assert (row.num_images, row.flops, row.params) == (3, cost.flops, cost.params)
    scores = ImageScores.read(tmp_path / 'per_image.npz', results)
    # mmsegmentation rounds to two places.
    assert abs(scores.scores(torch.ones(1, 3))[0, 0] - row.metrics['mIoU']) < 0.006


@pytest.mark.parametrize(
    ('loop', 'name'), [('StitchTestLoop', 'stitches'), ('TestLoop', 'results')]
)
def test_images_hook_dropped_images_do_not_count(toy_cfg, tmp_path, loop, name):
    toy_cfg.test_dataloader.update(batch_size=3, drop_last=True)
    toy_cfg.test_cfg = ConfigDict(type=loop)
    runner = Runner.from_cfg(toy_cfg)
    evaluate_whole_model(runner) if name == 'results' else runner.test()
    (path,) = tmp_path.glob(f'*/{name}.json')
    table = StitchTable.read(path)
    assert table.shared('num_images') == 3
    images = ImageScores.read(path.with_name('per_image.npz'), table)
    assert images.numerators.shape[1] == 3
