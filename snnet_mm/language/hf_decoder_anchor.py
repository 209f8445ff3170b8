"""LLaMA decoders from transformers as anchors."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from mmengine.registry import MODELS
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from snnet_mm.anchors import Anchor
from snnet_mm.anchors.pretrained import Weights, check_shapes
from snnet_mm.utils import check, refusal

PROJECTIONS = 'q_proj', 'k_proj', 'v_proj', 'o_proj'


class TextState(NamedTuple):
    """Activations of texts between two blocks; see :class:`TokenState`."""

    tokens: Tensor  # (B, L, C)
    real: Tensor  # (B, L), False where a text is padded
    mask: Tensor | None  # (B, 1, L, L), True to attend; None if causal
    positions: Tensor  # (B, L)
    # Cosines and sines by kind of rotation; anchors may share a kind.
    rotary: dict[str, tuple[Tensor, Tensor]]

    @property
    def fitted(self) -> Tensor:
        """Activations ``(N, C)`` for fitting stitching layers, without padding."""
        return self.tokens[self.real]

    def mapped(self, layer: Callable[[Tensor], Tensor]) -> 'TextState':
        """Return the state with a layer applied to every token."""
        return self._replace(tokens=layer(self.tokens))


@MODELS.register_module()
class HFDecoderAnchor(Anchor):
    """A LLaMA of transformers: an anchor, or a backbone on its own.

    Inputs are token ids ``(B, 1, L)``, negative where a text is padded: a text is an
    image of one row. :meth:`embed` computes the positions, rotations and causal mask
    once. Keys and values are not cached. Parameters are named as in
    ``LlamaForCausalLM``, but its layers are named ``blocks``.

    Args:
        model: A folder in the format of transformers or a name on its hub, from which
            the config is read, or the config as a dict with ``model_type``.
        pretrained: Folder or name of the weights that ``init_weights`` loads. To load a
            file, use an ``init_cfg`` of type ``'Pretrained'`` instead.
        dtype: Type of weights and computation in blocks, ``'float32'`` or
            ``'bfloat16'``; between blocks, in updates and in maps it is float32.
        **kwargs: See :class:`Anchor`; low-rank updates are applied to ``PROJECTIONS``.
    """

    lora_part, lora_targets = 'self_attn', PROJECTIONS
    strict_keys = r'blocks\.|embed_tokens|norm|lm_head'
    biased_layers = tuple(f'self_attn.{name}' for name in PROJECTIONS)

    def __init__(
        self,
        model: str | Mapping,
        pretrained: str | None = None,
        dtype: str = 'float32',
        **kwargs,
    ) -> None:
        self.config = config = _read_config(model)
        depth = config.num_hidden_layers
        super().__init__([config.hidden_size] * depth, [1] * depth, **kwargs)
        self.pretrained, self.dtype = pretrained, getattr(torch, dtype)
        built = AutoModelForCausalLM.from_config(config, dtype=self.dtype)
        self.embed_tokens, self.blocks = built.model.embed_tokens, built.model.layers
        self.norm, self.lm_head = built.model.norm, built.lm_head
        self.rotary_emb = built.model.rotary_emb
        scaling = getattr(config, 'rope_scaling', None)
        self.rotation = f'{config.head_dim} {config.rope_theta} {scaling} {dtype}'
        self.freeze()

    def embed(self, images: Tensor) -> TextState:
        ids, longest = images[:, 0], self.config.max_position_embeddings
        length = ids.shape[1]
        check(length <= longest, 'data_preprocessor.length', length, f'up to {longest}')
        number, keys = self.config.vocab_size, 'model.vocab_size, dataset.tokenizer'
        check(ids.max() < number, keys, number, 'the vocabulary size of the tokenizer')
        real = ids >= 0
        mask, positions = None, torch.arange(length, device=ids.device)[None]
        if not real.all():
            # Padding, which no text reads, attends to itself: an empty softmax is NaN.
            itself, before = positions == positions.mT, positions < positions.mT
            mask = (itself | before & real[:, None])[:, None]
            positions = (real.cumsum(1) - 1).clamp(min=0)
        tokens = self.embed_tokens(ids.clamp(min=0)).float()
        return self._rotated(TextState(tokens, real, mask, positions, {}))

    def _rotated(self, state: TextState) -> TextState:
        if self.rotation not in state.rotary:
            x = state.tokens.to(self.dtype)
            found = self.rotary_emb(x, position_ids=state.positions)
            state = state._replace(rotary={**state.rotary, self.rotation: found})
        return state

    def run_block(self, state: TextState, i: int) -> TextState:
        state = self._rotated(state)
        context = dict(attention_mask=state.mask, position_ids=state.positions)
        context['position_embeddings'] = state.rotary[self.rotation]

        def layers(tokens: Tensor) -> Tensor:
            tokens = self.blocks[i](tokens.to(self.dtype), use_cache=False, **context)
            return (self.norm(tokens) if i == self.depth - 1 else tokens).float()

        return state._replace(tokens=self.maybe_checkpoint(layers, state.tokens))

    def logits(self, state: TextState) -> Tensor:
        """Return logits ``(B, L, V)`` of the next tokens, from the final state."""
        return self.lm_head(state.tokens.to(self.dtype)).float()

    def to_feature_map(self, state: TextState) -> Tensor:
        return state.tokens.mT[:, :, None].contiguous()

    def empty_inputs(self, batch: int, size: tuple[int, int]) -> Tensor:
        """Return dummy token ids for counting costs; a text has height 1."""
        check(size[0] == 1, 'input_size', tuple(size), '(1, number of tokens)')
        device = self.lm_head.weight.device
        return torch.zeros(batch, *size, dtype=torch.long, device=device)

    def fix_input_size(self, size: tuple[int, int]) -> None:
        """Do nothing: no weight depends on the length of texts."""

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        return super().layer_depth(param_name.replace('lm_head', 'norm'))

    def adapt_weights(self, weights: Weights) -> Weights:
        """Rename weights of transformers; a tied head gets the embedding's weight."""
        weights = {
            k.removeprefix('model.').replace('layers.', 'blocks.'): v
            for k, v in weights.items()
        }
        if self.config.tie_word_embeddings and 'embed_tokens.weight' in weights:
            weights.setdefault('lm_head.weight', weights['embed_tokens.weight'])
        return {k: v for k, v in weights.items() if not k.endswith('inv_freq')}

    def init_weights(self) -> None:
        if self.pretrained is None:
            super().init_weights()
            return
        key = 'anchors.pretrained'
        check(self.init_cfg is None, 'init_cfg', self.init_cfg, f'None with {key}')
        layers = _read_config(self.pretrained, key).num_hidden_layers
        expected = f'{self.depth}, the layers of anchors.model'
        check(layers == self.depth, f'{key}.num_hidden_layers', layers, expected)
        try:
            load = AutoModelForCausalLM.from_pretrained
            loaded = load(self.pretrained, dtype=self.dtype).state_dict()
            weights = self.adapt_weights(loaded)
            check_shapes(weights, self.state_dict())
        except (OSError, ValueError) as error:
            raise refusal(key, self.pretrained, f'a matching model: {error}') from error
        self.load_state_dict(weights, strict=False)
        self.is_init = True


def _read_config(model: str | Mapping, key: str = 'anchors.model') -> PretrainedConfig:
    try:
        is_name, read = isinstance(model, str), AutoConfig.from_pretrained
        config = read(model) if is_name else AutoConfig.for_model(**model)
    except (OSError, ValueError, TypeError) as error:
        expected = f'a folder or name of transformers, or a dict of a config: {error}'
        raise refusal(key, model, expected) from error
    kind = config.model_type
    check(kind == 'llama', key, model, f'a LLaMA model; this is a {kind}')
    return config
