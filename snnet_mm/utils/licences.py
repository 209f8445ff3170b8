"""Licences of published weights, logged once when the weights are loaded."""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePath

from mmengine.logging import print_log
from torch import nn

_GATED = 'gated: accept it on Hugging Face before weights can be fetched'
# What the authors' repositories say, by names of their files.
_BY_FILE_NAME = {
    r'^mae_(finetuned|pretrain)': 'cc-by-nc-4.0',
    r'^beit': 'mit',
    r'^deit_': 'apache-2.0',
    r'^dinov2_': 'apache-2.0',
    r'^dinov3_': f'dinov3-license ({_GATED})',
    r'^sam_vit_': 'apache-2.0',
}


def log_timm_licence(model: nn.Module) -> None:
    """Log what timm says of the licence of a model's weights, and of their images."""
    cfg = model.pretrained_cfg
    name = '.'.join(filter(None, (cfg.get('architecture'), cfg.get('tag'))))
    origin = cfg.get('origin_url') or 'its authors'
    licence = cfg.get('license') or f'unknown to timm; ask {origin}'
    if licence == 'dinov3-license':
        licence += f' ({_GATED})'
    mean, std = ([round(255 * x, 3) for x in cfg[key]] for key in ('mean', 'std'))
    _log_once(
        f'Weights of {name}: licence {licence}; trained on images with mean {mean} and '
        f'std {std} (config key: data_preprocessor)'
    )


def log_file_licence(checkpoint: str) -> None:
    """Log the licence of an official file or address, if its name is known."""
    name = PurePath(checkpoint).name
    for pattern, licence in _BY_FILE_NAME.items():
        if re.search(pattern, name):
            official = f'licence {licence}, if it is the official file'
            _log_once(f'Weights of {name}: {official}')


@cache
def _log_once(message: str) -> None:
    print_log(message, logger='current')
