"""Convert the config and weights of a trained model to its elastic version."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

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
from snnet_mm.tasks import parts_for
from snnet_mm.training.config import layer_decay
from snnet_mm.utils import check, model_config, refusal
from snnet_mm.utils.base_checkpoint import with_prefixes
from snnet_mm.utils.registered_names import check_named
from snnet_mm.utils.timm_models import origin_of

# Settings of a standalone anchor that the elastic backbone takes over.
OUTPUTS = ('out', 'out_indices', 'with_cls')


class Conversion(NamedTuple):
    """The elastic backbone that replaces a trained one."""

    cfg: Config  # of the trained model
    backbone: dict  # config of the elastic backbone, without chains
    prefix: str  # replaces 'backbone.' in the names of weights
    origin: str | None  # pretrained checkpoint of the trained model

    @property
    def renames(self) -> dict[str, str]:
        """The new prefixes of the trained model's weights, by old prefix."""
        return {'backbone.': self.prefix}

    def build(self, chains: Sequence[str], trained: nn.Module) -> nn.Module:
        """Build the elastic model of some chains with the network's weights."""
        model = build_model(self.cfg, self.config(chains).model)
        weights = with_prefixes(trained.state_dict(), self.renames)
        model.load_state_dict(weights, strict=False)
        return model.to(next(trained.parameters()).device)

    def give_chains(self, model: nn.Module, chains: Sequence[str]) -> ElasticBackbone:
        """Give an elastic model other chains; its network stays the same module."""
        settings = {k: v for k, v in self.backbone.items() if k != 'type'}
        settings |= dict(anchors=[*model.backbone.anchors], chains=[*chains])
        model.backbone = ElasticBackbone(**settings)
        model.to(next(model.parameters()).device).eval()
        return model.backbone

    def config(
        self, chains: Sequence[str], input_size: tuple[int, int] | None = None
    ) -> Config:
        """Return the config of the elastic model; ``chains`` are their plans.

        ``input_size`` is the height and width at which costs are counted.
        """
        cfg = Config(deepcopy(self.cfg.to_dict()))
        cfg.model = model_config(cfg)  # without training wrappers
        cfg.model['backbone'] = deepcopy(dict(self.backbone, chains=[*chains]))
        cfg.weights_origin = [self.origin]
        if cfg.model.get('pretrained'):
            cfg.model['pretrained'] = None  # mm would pass it to the backbone
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


def convert_model(cfg: Config, model: nn.Module) -> Conversion:
    """Return the elastic replacement for the backbone of a trained model.

    The backbone may be an anchor of this package, or one of mmseg, mmdet or mmpretrain
    that :func:`family_of` supports. No weight changes, and outputs stay equal bit for
    bit.

    Raises:
        ValueError: If the backbone is missing, stitched or unsupported; the message
            lists the alternatives.
    """
    check_named(cfg)
    backbone = getattr(unwrapped(model), 'backbone', None)
    kind = type(backbone).__name__
    key, expected = 'model.backbone.type', 'a network that is not stitched yet'
    stitched = isinstance(backbone, StitchedBackbone | SingleStitch)
    check(backbone is not None and not stitched, key, kind, expected)
    given = model_config(cfg)
    config = dict(given.backbone)
    origin = origin_of(config) or given.get('pretrained')
    if isinstance(backbone, Anchor):
        # The anchor keeps them: gaps of a ChainAnchor end at the maps that it returns.
        outputs = {k: config[k] for k in OUTPUTS if k in config}
        anchor, prefix = config, 'backbone.anchors.0.'
    else:
        anchor = dict(type=family_of(backbone).name, net=config)
        outputs, prefix = {}, 'backbone.anchors.0.net.'
    config.pop('pretrained', None)
    config['init_cfg'] = None  # all weights come from the checkpoint
    if isinstance(backbone, Anchor):
        config.pop('init_cfg')
    elastic = dict(type=ElasticBackbone.__name__, anchors=[anchor], **outputs)
    return Conversion(cfg, elastic, prefix, origin)


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
