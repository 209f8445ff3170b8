"""Toy models of one network with random weights, as a user has a trained one."""

import torch
from mmengine.config import Config
from toy import TOY, without_weights

from snnet_mm.inference.init_model import init_model

CONFIGS = dict(
    seg='setr-naive_vit-fast_1xb16-300',
    depth='dpt_vit-fast_1xb16-300',
    det='mask-rcnn_vit-fast_1xb8-300',
    cls='cls_vit-fast_1xb16-600',
)
DEPTH = 4


@torch.no_grad()
def write_trained(task, folder):
    """Write config and checkpoint of four blocks whose weights all show."""
    cfg = Config.fromfile(TOY / f'{CONFIGS[task]}_toy-scenes-64x64.py')
    without_weights(cfg.model)
    cfg.log_level, cfg.param_scheduler = 'ERROR', []
    for name in ('train', 'val', 'test'):
        loader = cfg[f'{name}_dataloader']
        loader.update(batch_size=2)
        loader.dataset.num_scenes = 20 if name == 'train' else 4
    model = init_model(cfg, None, device='cpu')
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and 'rpn' not in name:
            parameter.normal_(std=0.2)
    files = folder / 'network.py', folder / 'network.pth'
    cfg.dump(files[0])
    meta = dict(dataset_meta=model.dataset_meta)
    torch.save(dict(meta=meta, state_dict=model.state_dict()), files[1])
    return files
