"""Hooks that check batches, labels, heads, parameters, weights and losses."""

import math
import re
from collections.abc import Mapping

import numpy as np
import torch
from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn

from snnet_mm.costs import count_parameters
from snnet_mm.datasets.data_checks import check_objects
from snnet_mm.models import StitchedBackbone, unwrapped
from snnet_mm.tasks import known
from snnet_mm.tasks.base import class_names
from snnet_mm.utils import check, is_whole, isolated_rng
from snnet_mm.utils.checkpoints import non_finite

from .stitch_checkpoint_hook import diverged
from .stitch_hooks import accumulative_counts, sampling_hook

NUM_SAMPLES = 16  # training samples whose labels are checked
LABELS = 'train_dataloader.dataset, metainfo.classes, reduce_zero_label'
COLORS = 'tools/dataset_converters/color_masks.py converts masks of colours'


class LaunchReportHook(Hook):
    """Logs the batch size of a training; warns if the config is made for another one.

    The batch size depends on the number of processes; that of the config is
    ``auto_scale_lr.base_batch_size``. Also warns if nothing is left to train.
    """

    priority = 'VERY_HIGH'

    def before_train(self, runner: Runner) -> None:
        if runner.iter >= runner.max_iters:
            runner.logger.warning(
                f'Nothing is left to train: the resumed checkpoint has {runner.iter} '
                f'iterations of {runner.max_iters} (--resume; config key: load_from)'
            )
        processes, loader = get_world_size(), runner.train_dataloader
        # mmdet's samplers make batches, and the loader then knows no size.
        size = loader.batch_size or getattr(loader.batch_sampler, 'batch_size', 0)
        if not size:  # batches of changing size
            return
        counts = accumulative_counts(runner)
        batch = processes * size * counts
        device = next(runner.model.parameters()).device.type
        steps = f' x {counts} iterations' if counts > 1 else ''
        runner.logger.info(
            f'Batch of {batch}: {size} images{steps} per process; processes: '
            f'{processes} ({device})'
        )
        settings = runner.cfg.get('auto_scale_lr') or {}
        base = settings.get('base_batch_size')
        if base not in (None, batch) and not settings.get('enable'):
            runner.logger.warning(
                f'The config is made for batches of {base} images, and these have '
                f'{batch}: change the number of processes or '
                'optim_wrapper.accumulative_counts, or pass --auto-scale-lr'
            )


@HOOKS.register_module()
class LabelCheckHook(Hook):
    """Checks labels, class names and ``num_classes`` of heads before training.

    A label outside the classes raises an index error on a CPU and a device assert on a
    GPU. Metrics silently ignore it. Class names that are not in a COCO file leave its
    objects out.
    """

    def before_train(self, runner: Runner) -> None:
        dataset = runner.train_dataloader.dataset
        num_samples = len(dataset)
        check(num_samples, 'train_dataloader.dataset', num_samples, '1 sample or more')
        classes = getattr(dataset, 'metainfo', {}).get('classes')
        if classes is None:
            return
        check_objects(dataset, 'train_dataloader.dataset')
        if (val := getattr(runner, 'val_loop', None)) is not None:
            check_objects(val.dataloader.dataset, 'val_dataloader.dataset')
        model = unwrapped(runner.model)
        head = getattr(model, 'decode_head', None)
        head = head[-1] if isinstance(head, nn.ModuleList) else head
        ignored_label = getattr(head, 'ignore_index', 255)
        chosen = np.random.default_rng(runner.seed).permutation(num_samples)
        with isolated_rng(runner.seed):
            for i in chosen[:NUM_SAMPLES].tolist():
                data = dataset[i]
                sample = data.get('data_samples', ()) if isinstance(data, dict) else ()
                if 'gt_instances' in sample:
                    break  # mmdet derives the labels from the names, checked above
                elif 'gt_sem_seg' in sample:
                    labels, ignored = sample.gt_sem_seg.data.unique(), [ignored_label]
                elif 'gt_label' in sample:
                    labels, ignored = sample.gt_label, []
                else:
                    return
                wrong = {*labels.tolist()} - {*range(len(classes)), *ignored}
                path = sample.get('seg_map_path') or sample.get('img_path', 'a sample')
                known = ' and '.join([f'0 to {len(classes) - 1}', *map(str, ignored)])
                expected = f'labels {known} in {path}; {COLORS}'
                check(not wrong, LABELS, sorted(wrong), expected)
        check_heads(model, dataset.metainfo)


def check_heads(model: nn.Module, metainfo: Mapping, split: str = 'training') -> None:
    """Raise unless the heads of a model have as many classes as a data set."""
    classes = metainfo['classes']
    # Heads of panoptic models may predict the classes of things only.
    allowed = {len(classes), len(metainfo.get('thing_classes') or classes)}
    numbers = ' or '.join(map(str, sorted(allowed, reverse=True)))
    data = f'{numbers}, the number of classes of the {split} set'
    layers = 'heads with layers of their own, as a stitched backbone returns no logits'
    stitched = isinstance(getattr(model, 'backbone', None), StitchedBackbone)
    heads, one_class = known('heads'), known('one_class')
    for path, part in model.named_modules():
        # Heads of a cascade and of end anchors have numbers in their paths.
        name = re.sub(r'(\.parts)?\.\d+', '', path)
        kinds = {*class_names(part)}
        # The parts of a PartPerAnchor are checked one by one.
        if name in heads and not kinds & {'PartPerAnchor', *one_class}:
            number = getattr(part, 'num_classes', max(allowed))
            check(number in allowed, f'model.{name}.num_classes', number, data)
            # Such as mmpretrain's ClsHead, which expects logits from the backbone.
            empty = stitched and next(part.parameters(), None) is None
            check(not empty, f'model.{name}.type', type(part).__name__, layers)


class WeightCheckHook(Hook):
    """Raises before a test if weights are not finite, however they were loaded."""

    def before_test(self, runner: Runner) -> None:
        if key := non_finite(unwrapped(runner.model).state_dict()):
            raise ValueError(
                f'the checkpoint holds {key} that is not finite: the training '
                'diverged, or the file is damaged (argument: checkpoint)'
            )


@HOOKS.register_module()
class TrainableParamsHook(Hook):
    """Logs how many parameters are trained; warns if no hook switches stitches."""

    def before_train(self, runner: Runner) -> None:
        counts = count_parameters(runner.model)
        trained, total = map(sum, zip(*counts.values(), strict=True))
        keys = 'backbone.anchors.frozen_stages, lora, stitching_layer'
        expected = f'trainable parameters; all {total:,} of the model are frozen'
        check(trained, keys, trained, expected)
        parts = ', '.join(f'{name} {n:,} of {m:,}' for name, (n, m) in counts.items())
        runner.logger.info(
            f'Trained parameters: {trained:,} of {total:,} '
            f'({100 * trained / total:.3g} %): {parts}'
        )
        for module in runner.model.modules():
            if isinstance(module, StitchedBackbone) and sampling_hook(runner) is None:
                runner.logger.warning(
                    f'Only stitch {module.active_stitch.id} will be trained: there is '
                    'no StitchSamplingHook (config key: default_hooks.stitch_sampling).'
                )


@HOOKS.register_module()
class LossCheckHook(Hook):
    """Stops a training whose loss is not finite, before a checkpoint is written.

    mmengine's ``RuntimeInfoHook`` copies every loss from the device to the message hub,
    where this hook reads it: no further synchronisation is needed.

    Args:
        patience: Number of consecutive iterations with a non-finite loss that stop the
            training. A single one may pass: mixed precision skips its step. Default: 5.
    """

    def __init__(self, patience: int = 5) -> None:
        check(is_whole(patience, 1), 'patience', patience, 'a whole number from 1')
        self.patience, self.count = patience, 0

    def before_train(self, runner: Runner) -> None:
        """Raise if float16 cannot hold the number by which a mask loss is divided.

        mmdet divides that of MaskFormer and Mask2Former by the number of points of all
        masks: in float16 the loss would be 0 or NaN.
        """
        # None of mmengine's AmpOptimWrapper means torch's default on GPUs.
        dtype = getattr(runner.optim_wrapper, 'cast_dtype', torch.bfloat16)
        for part in runner.model.modules():
            kinds = class_names(part)
            if 'MaskFormerHead' in kinds and 'EoMTHead' not in kinds:
                found, wide = str(dtype or torch.float16), dtype is torch.bfloat16
                expected = f"'bfloat16' for {type(part).__name__}, whose mask loss "
                expected += 'exceeds float16; or train without --amp'
                check(wide, 'optim_wrapper.dtype', found, expected)

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        logged = runner.message_hub.log_scalars
        names = [name for name in outputs or () if 'loss' in name]
        values = [
            logged[f'train/{n}'].current() for n in names if f'train/{n}' in logged
        ]
        wrong = [value for value in values if not math.isfinite(value)]
        self.count = self.count + 1 if wrong else 0
        if self.count == 1:
            runner.logger.warning(f'loss={wrong[0]} at iteration {runner.iter + 1}.')
        if self.count == self.patience:
            first, last = runner.iter + 2 - self.patience, runner.iter + 1
            raise diverged(runner, f'loss={wrong[0]} at iterations {first} to {last}')
