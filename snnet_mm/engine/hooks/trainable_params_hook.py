from __future__ import annotations

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from snnet_mm.evaluation import count_parameters
from snnet_mm.models import StitchedBackbone, gathered
from snnet_mm.utils import check, register

from .stitch_sampling_hook import sampling_hook


@register(HOOKS)
class TrainableParamsHook(Hook):
    """Logs how many parameters are trained, by part of the model.

    Warns of a stitched backbone whose stitches no hook switches.
    """

    def before_train(self, runner: Runner) -> None:
        """Log before the first iteration."""
        with gathered(runner.model):
            counts = count_parameters(runner.model)
        trained = sum(count.trained for count in counts.values())
        total = sum(count.total for count in counts.values())
        keys = 'backbone.anchors.frozen_stages, lora, stitching_layer'
        some = f'some of {total:,} parameters of the model, which are all frozen'
        check(trained, keys, trained, some)
        parts = ', '.join(f'{part} {count}' for part, count in counts.items())
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
