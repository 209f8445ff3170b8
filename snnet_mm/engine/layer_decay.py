"""Layer-wise decay of the learning rate, every anchor by its own rate and depth."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from numbers import Real
from typing import NamedTuple

from mmengine.logging import print_log
from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS
from torch import nn

from snnet_mm.anchors import Anchor
from snnet_mm.models import SingleStitch, StitchedBackbone

# Tables: pos_embed, cls_token, reg_token, rel_pos_bias.table, rel_pos_bias.rel_pos_h;
# in timm relative_position_bias_table, attention_biases (LeViT) and rope.freqs.
POSITIONS_AND_TOKENS = re.compile(
    r'(^|[._])(pos|position|token|freqs|attention_biases)([._]|$)'
)


class _Decayed(NamedTuple):
    """An anchor, where it is in the model, and its rate."""

    prefix: str
    anchor: Anchor
    rate: float

    def scale(self, name: str) -> float:
        """What is left of the learning rate for a parameter of the anchor."""
        level, num_levels = self.anchor.layer_depth(name.removeprefix(self.prefix))
        return self.rate ** (num_levels - 1 - level)


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class AnchorLayerDecayConstructor(DefaultOptimWrapperConstructor):
    """Learning rates that fall towards the embedding of every anchor.

    A parameter at level ``i`` of the ``n`` levels of an anchor, see
    :meth:`Anchor.layer_depth`, is trained at the learning rate times ``rate ** (n - 1 -
    i)``, as in ViTDet. Stitching layers, necks and heads have the full rate. SN-Netv2
    keeps for every anchor the rate that the anchor has alone (appendix H).

    Weight decay is for matrices and kernels: not for vectors (biases, norms,
    LayerScale), nor for tokens and position embeddings, absolute and relative. Frozen
    parameters are left out. A backbone of one anchor and a single stitch work too.

    Args:
        optim_wrapper_cfg: Config of the optimizer wrapper.
        paramwise_cfg: ``decay_rates`` is a rate above 0 and up to 1 for every anchor,
            fast to slow, or one number for all. ``lr_mults``, if there is one, has
            factors by which the learning rates of parts of the model are multiplied,
            by the names of these: ``{'backbone.anchors': 0.1, 'head.anchor_heads':
            0.1}`` is SN-Netv1's for anchors with stages, with a decay rate of 1.

    Raises:
        ValueError: For another key, a rate outside these bounds, a negative factor, or
            an optimizer without a learning rate.
    """

    def __init__(
        self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None
    ) -> None:
        super().__init__(optim_wrapper_cfg, paramwise_cfg)
        keys = set(self.paramwise_cfg)
        if not {'decay_rates'} <= keys <= {'decay_rates', 'lr_mults'}:
            raise ValueError(
                f'paramwise_cfg with the keys {sorted(keys)}; wanted is decay_rates, '
                'allowed is lr_mults (config key: optim_wrapper.paramwise_cfg)'
            )
        if self.base_lr is None:
            raise ValueError(
                'layer-wise decay has no learning rate to begin with (config key: '
                'optim_wrapper.optimizer.lr)'
            )
        self.rates = _read_rates(self.paramwise_cfg['decay_rates'])
        self.lr_mults = dict(self.paramwise_cfg.get('lr_mults', {}))
        if not all(isinstance(x, Real) and x >= 0 for x in self.lr_mults.values()):
            raise ValueError(
                f'lr_mults={self.lr_mults}; allowed are factors of 0 or more (config '
                'key: optim_wrapper.paramwise_cfg.lr_mults)'
            )

    def add_params(self, params: list[dict], module: nn.Module, **kwargs) -> None:
        """Add the trained parameters of a model, those of equal settings in one group.

        The full learning rate, which logs show, comes first.

        Raises:
            ValueError: If the model trains no anchor, or not as many as there are
                rates, or has no part of a name in ``lr_mults``.
        """
        anchors = self._decayed_anchors(module)
        groups = defaultdict(list)
        self._check_parts(module)
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                of = [a for a in anchors if name.startswith(a.prefix)]
                lr = self.base_lr * (of[0].scale(name) if of else 1)
                lr *= self._multiplier(name)
                decays = parameter.ndim > 1 and not POSITIONS_AND_TOKENS.search(name)
                groups[lr, decays].append(parameter)
        for lr, decays in sorted(groups, reverse=True):
            group = dict(params=groups[lr, decays], lr=lr)
            if self.base_wd is not None:
                group['weight_decay'] = self.base_wd if decays else 0.0
            params.append(group)
        for anchor in anchors:
            _report(anchor, self.base_lr * self._multiplier(anchor.prefix))

    def _multiplier(self, name: str) -> float:
        """The factor of a parameter, or of all those under a prefix."""
        return prod(x for part, x in self.lr_mults.items() if _is_in(name, part))

    def _check_parts(self, model: nn.Module) -> None:
        # Modules, for a stitch alone may have an empty list of stitching layers.
        for part in self.lr_mults:
            if not any(_is_in(name, part) for name, _ in model.named_modules()):
                raise ValueError(
                    f'lr_mults has {part!r}, but {type(model).__name__} has no part of '
                    'this name (config key: optim_wrapper.paramwise_cfg.lr_mults)'
                )

    def _decayed_anchors(self, model: nn.Module) -> list[_Decayed]:
        anchors = []
        for prefix, members in _trained_anchors(model):
            rates = self.rates
            if isinstance(rates, float):
                rates = (rates,) * len(members)
            elif len(rates) != len(members):
                raise ValueError(
                    f'decay_rates={rates} for {len(members)} anchors; allowed are a '
                    'rate for each or one number for all (config key: '
                    'optim_wrapper.paramwise_cfg.decay_rates)'
                )
            anchors += [
                _Decayed(prefix + name, anchor, rate)
                for (name, anchor), rate in zip(members, rates, strict=True)
                if anchor is not None
            ]
        if not anchors:
            raise ValueError(
                f'{type(model).__name__} trains no anchor; layer-wise decay is for '
                'backbones such as SNNetv2 and PlainViT (config keys: '
                'optim_wrapper.constructor, model.backbone)'
            )
        return anchors


def _trained_anchors(
    model: nn.Module,
) -> Iterator[tuple[str, Sequence[tuple[str, Anchor | None]]]]:
    """Anchors of every backbone, fast to slow, with their place in it.

    None is an anchor that a single stitch does not hold.
    """
    seen = set()
    for name, module in model.named_modules():
        if isinstance(module, StitchedBackbone | SingleStitch):
            members = [(f'anchors.{i}.', a) for i, a in enumerate(module.anchors)]
        elif isinstance(module, Anchor) and module not in seen:
            members = [('', module)]
        else:
            continue
        seen |= {anchor for _, anchor in members}
        if any(p.requires_grad for p in module.parameters()):
            yield f'{name}.' if name else '', members


def _is_in(name: str, part: str) -> bool:
    """Whether a parameter belongs to a part, wherever wrappers have put that."""
    return f'.{part}.' in f'.{name}.'


def _read_rates(rates: float | Sequence[float]) -> float | tuple[float, ...]:
    """One rate, or a rate for every anchor.

    Raises:
        ValueError: If one is not above 0 and up to 1.
    """
    listed = tuple(rates) if isinstance(rates, Sequence) else (rates,)
    if not listed or not all(isinstance(r, Real) and 0 < r <= 1 for r in listed):
        raise ValueError(
            f'decay_rates={rates!r}; allowed are rates above 0 and up to 1 (config '
            'key: optim_wrapper.paramwise_cfg.decay_rates)'
        )
    return float(rates) if isinstance(rates, Real) else listed


def _report(decayed: _Decayed, lr: float) -> None:
    prefix, anchor, rate = decayed
    print_log(
        f'Layer-wise decay of {prefix.rstrip(".") or "the model"}: rate {rate}, '
        f'learning rates from {lr * rate ** (anchor.depth + 1):.3g} at the embedding '
        f'to {lr * rate:.3g} at block {anchor.depth - 1}.',
        logger='current',
    )
