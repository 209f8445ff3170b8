import torch
from narrow_toy import SHORT

from snnet_mm.exports.heads import write_heads


def test_models_without_graphs_of_heads_are_not_run(toy_cfg, build, tmp_path):
    model = build(toy_cfg(sizes=SHORT))
    model.data_preprocessor = None  # which every prediction needs
    assert write_heads(model, torch.zeros(1, 3, 64, 64), tmp_path, None) == []
