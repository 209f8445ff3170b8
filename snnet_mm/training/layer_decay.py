"""Layer-wise learning rate decay with the rate and depth of each anchor."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from numbers import Real

from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS
from torch import nn

from snnet_mm.anchors import Anchor
from snnet_mm.models import SingleStitch, StitchedBackbone
from snnet_mm.utils import check, is_whole

# Matches pos_embed, cls_token, reg_token, rel_pos_bias.table, rel_pos_bias.rel_pos_h;
# in timm relative_position_bias_table, attention_biases (LeViT) and rope.freqs.
POSITIONS_AND_TOKENS = re.compile(
    r'(^|[._])(pos|position|token|freqs|attention_biases)([._]|$)'
)
KEY = 'optim_wrapper.paramwise_cfg'


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class AnchorLayerDecayConstructor(DefaultOptimWrapperConstructor):
    """Decays learning rates towards the embedding of every anchor.

    The learning rate of a parameter at level ``i`` of the ``n`` levels of an anchor
    (:meth:`Anchor.layer_depth`) is multiplied by ``rate ** (n - 1 - i)``, as in ViTDet
    (SN-Netv2, appendix H). All other parameters keep the full rate. Weight decay
    applies to matrices and kernels, not to vectors, tokens and position embeddings.

    Args:
        paramwise_cfg: ``decay_rates``, one rate in (0, 1] per anchor, fast to slow, or
            a single rate for all; optionally ``lr_mults``, learning rate factors by
            module name, such as ``{'backbone.anchors': 0.1}``, and ``num_layers``, the
            number of decays over all blocks. Default: one per block.
    """

    def __init__(
        self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None
    ) -> None:
        super().__init__(optim_wrapper_cfg, paramwise_cfg)
        keys = set(self.paramwise_cfg)
        known = {'decay_rates'} <= keys <= {'decay_rates', 'lr_mults', 'num_layers'}
        expected = 'decay_rates and, optionally, lr_mults and num_layers'
        check(known, KEY, sorted(keys), expected)
        self.num_layers = number = self.paramwise_cfg.get('num_layers')
        right = number is None or is_whole(number, 1)
        check(right, f'{KEY}.num_layers', number, '1 or more')
        has_lr = self.base_lr is not None
        check(has_lr, 'optim_wrapper.optimizer.lr', None, 'a learning rate')
        self.rates = rates = self.paramwise_cfg['decay_rates']
        listed = rates if isinstance(rates, Sequence) else [rates]
        right = listed and all(isinstance(r, Real) and 0 < r <= 1 for r in listed)
        check(right, f'{KEY}.decay_rates', rates, 'rates in (0, 1]')
        self.lr_mults = dict(self.paramwise_cfg.get('lr_mults', {}))
        right = all(isinstance(x, Real) and x >= 0 for x in self.lr_mults.values())
        check(right, f'{KEY}.lr_mults', self.lr_mults, 'factors of 0 or more')

    def add_params(self, params: list[dict], module: nn.Module, **kwargs) -> None:
        anchors = list(self._decayed_anchors(module))
        kind, keys = type(module).__name__, 'optim_wrapper.constructor, model'
        expected = 'a model that trains an anchor, such as SNNetv2 and PlainViT'
        check(anchors, keys, kind, expected)
        # Match modules: a single stitch may have an empty list of stitching layers.
        parts = [name for name, _ in module.named_modules()]
        for part in self.lr_mults:
            there = any(_is_in(name, part) for name in parts)
            check(there, f'{KEY}.lr_mults', part, 'names of modules of the model')
        groups = defaultdict(list)
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                lr = self.base_lr * prod(
                    x for part, x in self.lr_mults.items() if _is_in(name, part)
                )
                for prefix, anchor, rate in anchors:
                    if name.startswith(prefix):
                        level, num = anchor.layer_depth(name.removeprefix(prefix))
                        steps = num - 1 - level
                        if self.num_layers:
                            steps *= (self.num_layers + 1) / (num - 1)
                        lr *= rate**steps
                decays = parameter.ndim > 1 and not POSITIONS_AND_TOKENS.search(name)
                groups[lr, decays].append(parameter)
        for lr, decays in sorted(groups, reverse=True):
            group = dict(params=groups[lr, decays], lr=lr)
            if self.base_wd is not None:
                group['weight_decay'] = self.base_wd if decays else 0.0
            params.append(group)

    def _decayed_anchors(self, model: nn.Module) -> Iterator[tuple[str, Anchor, float]]:
        """Yield prefix, anchor and rate in trained backbones; skip missing anchors."""
        seen = set()
        for name, module in model.named_modules():
            if isinstance(module, StitchedBackbone | SingleStitch):
                members = {f'anchors.{i}.': a for i, a in enumerate(module.anchors)}
            elif isinstance(module, Anchor) and module not in seen:
                members = {'': module}
            else:
                continue
            for anchor in filter(None, members.values()):
                seen.update(anchor.modules())  # an anchor may contain another
            if not any(p.requires_grad for p in module.parameters()):
                continue
            rates, number = self.rates, len(members)
            if isinstance(rates, Real):
                rates = [rates] * number
            expected = f'a rate for each of {number} anchors or one number for all'
            check(len(rates) == number, f'{KEY}.decay_rates', rates, expected)
            for (at, anchor), rate in zip(members.items(), rates, strict=True):
                if anchor is not None:
                    yield f'{name}.{at}'.lstrip('.'), anchor, rate


def _is_in(name: str, part: str) -> bool:
    # Wrappers may prepend further names to the path of the part.
    return f'.{part}.' in f'.{name}.'
