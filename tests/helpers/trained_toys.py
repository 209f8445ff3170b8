"""Unstitched toy models with random weights, in place of trained ones."""

import torch
from config_models import CONFIGS as FOLDER
from mmengine.config import Config
from mmengine.utils import import_modules_from_strings
from narrowing import WIDTH, narrow
from toy import CONFIGS, TOY, without_weights

from snnet_mm.models.init_model import init_model

# Query-based heads, and the task whose data and network they use.
OF_QUERIES = dict(dino='det', mask2former='seg', eomt='seg')
DEPTH = 4


@torch.no_grad()
def write_trained(task, folder):
    """Write config and checkpoint of four blocks whose weights affect the output."""
    base = OF_QUERIES.get(task, task)
    config = CONFIGS[base].replace('snnetv2-fast-slow', 'vit-fast')
    cfg = Config.fromfile(TOY / f'{config}_toy-scenes-64x64.py')
    if base == 'seg':
        cfg.model.backbone.arch.embed_dims = WIDTH
        cfg.model.decode_head.update(in_channels=WIDTH, num_convs=1)
    if task in OF_QUERIES:
        give_queries(cfg, task)
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


def give_queries(cfg, kind):
    """Give a narrow query-based head to the network of a toy config."""
    file = '_base_/models/{}_vit.py'.format('dino' if kind == 'dino' else 'mask2former')
    model = Config.fromfile(FOLDER / file).model
    backbone, preprocessor = cfg.model.backbone, cfg.model.data_preprocessor
    model.update(backbone=backbone, data_preprocessor=preprocessor)
    model.neck.update(in_channels=WIDTH, in_stride=8)
    if kind == 'eomt':
        vit = dict(backbone, arch=dict(backbone.arch, depth=2), final_norm=True)
        head = dict(type='EoMTSegHead', vit=vit, channels=8, num_queries=20)
        del model.neck
        model.decode_head = dict(head, num_classes=5)
    elif kind == 'dino':
        model.bbox_head.num_classes = 1
        cfg.test_evaluator.metric = 'bbox'
    else:
        model.decode_head.update(num_classes=5)
        model.decode_head.loss_cls.class_weight = [1.0] * 5 + [0.1]
    if kind != 'dino':
        parts = ['snnet_mm', 'snnet_mm.tasks.mmseg.eomt']
        import_modules_from_strings(parts)  # as reading the written config does
        cfg.custom_imports = dict(imports=parts, allow_failed_imports=False)
    narrow(model)
    cfg.model = model
