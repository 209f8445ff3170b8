from __future__ import annotations

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from snnet_mm.analysis import count_parameters


@HOOKS.register_module()
class TrainableParamsHook(Hook):
    """Logs how many parameters are trained, by part of the model.

    Raises:
        ValueError: If there are none.
    """

    def before_train(self, runner: Runner) -> None:
        """Log before the first iteration."""
        counts = count_parameters(runner.model)
        trained = sum(count.trained for count in counts.values())
        total = sum(count.total for count in counts.values())
        if not trained:
            raise ValueError(
                f'all {total:,} parameters of the model are frozen: nothing is left '
                'to train (config keys: frozen_stages, lora, stitching_layer)'
            )
        parts = ', '.join(f'{part} {count}' for part, count in counts.items())
        runner.logger.info(
            f'Trained parameters: {trained:,} of {total:,} '
            f'({100 * trained / total:.3g} %): {parts}'
        )
