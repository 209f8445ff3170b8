"""Convert the config and weights of a trained model to its elastic version."""

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import Anchor, family_of
from snnet_mm.models import (
    ElasticBackbone,
    SingleStitch,
    StitchedBackbone,
    unwrapped,
)
from snnet_mm.tasks import parts_for, task_of
from snnet_mm.training.config import layer_decay
from snnet_mm.utils import check, model_config, refusal
from snnet_mm.utils.timm_models import origin_of

# Settings of a standalone anchor that the elastic backbone takes over.
OUTPUTS = ('out', 'out_indices', 'with_cls')


def elastic_model(network: nn.Module, chains: Sequence[str] = ()) -> nn.Module:
    """Return the elastic version of a trained model, in eval mode.

    It shares all modules with the network. The backbone may be an anchor of this
    package, or one of mmseg, mmdet or mmpretrain that :func:`family_of` supports.

    Raises:
        ValueError: If the backbone is missing, stitched or unsupported; the message
            lists the alternatives.
    """
    backbone, outputs = _backbone_of(network), _full_maps(network)
    if isinstance(backbone, Anchor):
        anchor = backbone
        outputs |= {k: getattr(backbone, k) for k in OUTPUTS}
    else:
        anchor = MODELS.build(dict(type=family_of(backbone).name, net=backbone))
    model = copy(network)
    model._modules = dict(network._modules)
    model.backbone = ElasticBackbone([anchor], chains, **outputs)
    model.backbone.to(next(backbone.parameters()).device).eval()
    return model


def give_chains(model: nn.Module, chains: Sequence[str]) -> ElasticBackbone:
    """Give an elastic model other chains; its network stays the same module."""
    before = model.backbone
    outputs = {name: getattr(before, name) for name in (*OUTPUTS, 'full_maps')}
    model.backbone = ElasticBackbone([*before.anchors], chains, **outputs)
    model.backbone.to(next(before.parameters()).device).eval()
    return model.backbone


def renames_of(network: nn.Module) -> dict[str, str]:
    """Return the new prefixes of a trained model's weights, by old prefix."""
    own = isinstance(_backbone_of(network), Anchor)
    return {'backbone.': f'backbone.anchors.0.{"" if own else "net."}'}


def elastic_backbone(cfg: Config, network: nn.Module) -> dict:
    """Return the config of the backbone of :func:`elastic_model`, without chains."""
    backbone, config = _backbone_of(network), dict(model_config(cfg).backbone)
    for key in ('pretrained', 'init_cfg'):  # all weights come from the checkpoint
        config.pop(key, None)
    if isinstance(backbone, Anchor):
        # The anchor keeps them: gaps of a ChainAnchor end at the maps that it returns.
        outputs = {k: config[k] for k in OUTPUTS if k in config}
    else:
        config = dict(type=family_of(backbone).name, net=dict(config, init_cfg=None))
        outputs = {}
    return dict(type=ElasticBackbone.__name__, anchors=[config], **outputs)


def _full_maps(network: nn.Module) -> dict:
    """Return the setting of a backbone whose heads resize their predictions."""
    return {} if task_of(network).full_maps else dict(full_maps=False)


def elastic_config(
    cfg: Config,
    network: nn.Module,
    chains: Sequence[str],
    input_size: tuple[int, int] | None = None,
) -> Config:
    """Return the config of the elastic version of a trained model.

    Args:
        cfg: Config of the trained model.
        network: The trained model.
        chains: Plans of the chains.
        input_size: Height and width at which costs are counted.
    """
    backbone = dict(elastic_backbone(cfg, network), chains=[*chains])
    backbone |= _full_maps(network)
    cfg = Config(deepcopy(cfg.to_dict()))
    model = model_config(cfg)  # without training wrappers
    origin = origin_of(model['backbone']) or model.get('pretrained')
    model['backbone'] = deepcopy(backbone)
    if model.get('pretrained'):
        model['pretrained'] = None  # mm would pass it to the backbone
    cfg.model, cfg.weights_origin = model, [origin]
    own_imports = dict(imports=imports_of(cfg), allow_failed_imports=False)
    cfg.custom_imports = own_imports
    for key, kind in (('val_cfg', 'StitchValLoop'), ('test_cfg', 'StitchTestLoop')):
        if cfg.get(key) is not None:
            fp16 = {k: v for k, v in cfg[key].items() if k == 'fp16'}
            cfg[key] = dict(type=kind, stitches='all', **fp16)
    if input_size is not None and cfg.get('test_cfg') is not None:
        cfg.test_cfg.input_size = tuple(input_size)
    if changed := layer_decay(cfg.get('optim_wrapper') or {}):
        cfg.merge_from_dict(dict(optim_wrapper=changed))
    cfg.load_from, cfg.resume = None, False
    return cfg


def _backbone_of(network: nn.Module) -> nn.Module:
    """Return the backbone of a trained model; raise if it is missing or stitched."""
    backbone = getattr(unwrapped(network), 'backbone', None)
    stitched = isinstance(backbone, StitchedBackbone | SingleStitch)
    expected = 'a network that is not stitched yet'
    right, kind = backbone is not None and not stitched, type(backbone).__name__
    check(right, 'model.backbone.type', kind, expected)
    return backbone


def build_model(cfg: Config, model: Mapping) -> nn.Module:
    """Build a model in eval mode, in the default scope of a config."""
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        built = revert_sync_batchnorm(MODELS.build(deepcopy(dict(model))))
    built.eval()  # not chained: some models return None
    return built


def imports_of(cfg: Config) -> list[str]:
    """Return the imports of a config, with this package and the parts of its task."""
    given = (cfg.get('custom_imports') or {}).get('imports', ())
    imports = [given] if isinstance(given, str) else list(given)
    return [*dict.fromkeys([*imports, 'snnet_mm', *parts_for(cfg)])]


@torch.no_grad()
def check_equal(before: nn.Module, after: nn.Module, images: Tensor) -> None:
    """Check that two models have equal features for images ``(B, 3, H, W)``.

    Raises:
        ValueError: If any value differs.
    """
    pair = (tree_leaves(unwrapped(m).backbone(images)) for m in (before, after))
    for a, b in zip(*pair, strict=True):
        if isinstance(a, Tensor) and not torch.equal(a, b):
            kind = type(unwrapped(before).backbone).__name__
            expected = 'a network whose forward runs block by block; features of '
            expected += f'this one differ by {(a - b).abs().max().item():.1e}'
            raise refusal('model.backbone.type', kind, expected)
