"""Gradient clipping by weight norms."""

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner


@HOOKS.register_module()
class AdaptiveGradClipHook(Hook):
    """Clips gradients before every step, as in LeViT's recipe; requires timm.

    The gradient norm of each row of a weight is at most ``clip_factor`` times the norm
    of the row (Brock et al., 2021), also under AMP. Leave ``clip_grad`` of the optim
    wrapper None, because it clips by one global norm.
    """

    def __init__(self, clip_factor: float = 0.01) -> None:
        self.clip_factor = clip_factor

    def before_train(self, runner: Runner) -> None:
        from timm.utils.agc import adaptive_clip_grad

        def clip(optimizer, *_) -> None:
            for group in optimizer.param_groups:
                adaptive_clip_grad(group['params'], self.clip_factor)

        runner.optim_wrapper.optimizer.register_step_pre_hook(clip)
