"""Causal language models on stitched decoders or on a single one."""

import math
from collections.abc import Sequence

import torch.nn.functional as F
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseDataPreprocessor, BaseModel
from mmengine.registry import METRICS, MODELS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from snnet_mm.tasks import Task, register_task
from snnet_mm.utils import check, is_whole

from .hf_decoder_anchor import HFDecoderAnchor

IGNORED = -100  # the label of tokens that are not targets, as in transformers


@MODELS.register_module()
class TextPreprocessor(BaseDataPreprocessor):
    """Pads the texts of a batch to the longest one.

    Args:
        length: Number of tokens at which costs are counted and texts are truncated.
    """

    def __init__(self, length: int, **kwargs) -> None:
        super().__init__(**kwargs)
        check(is_whole(length, 2), 'data_preprocessor.length', length, '2 or more')
        self.size = 1, length  # a text is an image of one row

    def forward(self, data: dict, training: bool = False) -> dict:
        """Return token ids ``(B, 1, L)``, -1 where padded, with their data samples."""
        data = self.cast_data(data)
        texts = [ids[0, : self.size[1]] for ids in data['inputs']]
        inputs = pad_sequence(texts, batch_first=True, padding_value=-1)
        return dict(inputs=inputs[:, None], data_samples=data.get('data_samples'))


@MODELS.register_module()
class CausalLM(BaseModel):
    """A language model on stitched decoders of transformers, or on a single one.

    Args:
        backbone: Config of an ``SNNetv1`` or ``SNNetv2`` of :class:`HFDecoderAnchor`
            with ``out='end'``, or of one such anchor. A stitch ends with the final norm
            and the head of its last anchor.
        data_preprocessor: Config of a :class:`TextPreprocessor`.
    """

    def __init__(self, backbone: dict, data_preprocessor: dict | None = None) -> None:
        super().__init__(data_preprocessor)
        backbone = dict(out='end') | dict(backbone)
        check(backbone['out'] == 'end', 'backbone.out', backbone['out'], ('end',))
        self.backbone = MODELS.build(backbone)
        anchors = getattr(self.backbone, 'anchors', [self.backbone])
        for anchor in anchors:
            fits, name = isinstance(anchor, HFDecoderAnchor), type(anchor).__name__
            check(fits, 'backbone.anchors.type', name, ('HFDecoderAnchor',))
        sizes = [anchor.config.vocab_size for anchor in anchors]
        expected = 'equal vocabularies: anchors read the same tokens'
        check(len({*sizes}) == 1, 'anchors.model.vocab_size', sizes, expected)
        # Outputs the logits (N, V) of all targets, for distillation: logits_from.
        self.target_logits = nn.Identity()

    def forward(
        self,
        inputs: Tensor,
        data_samples: Sequence[BaseDataElement] | None = None,
        mode: str = 'tensor',
    ) -> Tensor | dict[str, Tensor] | Sequence[BaseDataElement]:
        """Run texts.

        Args:
            inputs: Token ids ``(B, 1, L)``, negative where padded.
            data_samples: Samples with ``labels``: the target tokens, or -100 if a token
                is not a target.
            mode: ``'tensor'`` for logits ``(B, L, V)``, ``'loss'`` for the mean cross
                entropy of all targets, ``'predict'`` for samples with the summed cross
                entropy ``nll`` and the number of targets ``num_targets`` of each text.
        """
        last = self.backbone
        if not isinstance(last, HFDecoderAnchor):
            last = last.anchors[last.active_stitch.end_anchor]
        logits = last.logits(self.backbone(inputs))
        if mode == 'tensor':
            return logits
        length, labels = inputs.shape[-1], [s.labels[0] for s in data_samples]
        targets = pad_sequence(labels, batch_first=True, padding_value=IGNORED)
        targets = targets[:, 1:length]
        known = targets != IGNORED
        counts = known.sum(1)
        if mode == 'loss':
            found = self.target_logits(logits[:, :-1][known])
            loss = F.cross_entropy(found, targets[known], reduction='sum')
            return dict(loss=loss / counts.sum().clamp(min=1))
        nll = F.cross_entropy(logits[:, :-1].mT, targets, reduction='none')
        for sample, total, count in zip(data_samples, nll.sum(1), counts, strict=True):
            sample.set_field(total.item(), 'nll')
            sample.set_field(count.item(), 'num_targets')
        return data_samples


@METRICS.register_module()
class Perplexity(BaseMetric):
    """The exponential of the mean cross entropy over all targets of all texts."""

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        self.results += [(s['nll'], s['num_targets']) for s in data_samples]

    def compute_metrics(self, results: list) -> dict[str, float]:
        nll, number = map(sum, zip(*results, strict=True))
        return dict(perplexity=math.exp(nll / number) if number else math.nan)


@register_task
class LanguageModelling(Task):
    """Prediction of the next tokens of texts."""

    name = 'language modelling'
    classes = ('CausalLM',)
    unsized = True
    lower = ('perplexity',)
