"""Whether a checkpoint holds what a training goes on from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mmengine.logging import HistoryBuffer
from mmengine.optim import OptimWrapper
from torch import Tensor
from torch.optim import Optimizer

from snnet_mm.utils import is_number, is_whole

RESUMED = ('meta', 'message_hub', 'optimizer')


def check_resumed_state(
    checkpoint: Mapping, name: str, optim_wrapper: OptimWrapper | None = None
) -> None:
    """Check that a checkpoint holds what a training goes on from.

    Args:
        checkpoint: The checkpoint.
        name: What to call it.
        optim_wrapper: What its optimizer state is to go into, if that is built and has
            one optimizer.

    Raises:
        ValueError: If it does not, such as one that holds weights alone, or anything
            in it is of another form.
    """
    faults = _missing(checkpoint) or [*_meta_faults(checkpoint['meta'])]
    if not faults:
        faults = [
            *_message_hub_faults(checkpoint['message_hub']),
            *_optimizer_faults(checkpoint, getattr(optim_wrapper, 'optimizer', None)),
        ]
    if faults:
        raise ValueError(
            f'checkpoint {name} cannot be resumed: {faults[0]}. To start from its '
            'weights, set resume=False (config keys: resume, load_from)'
        )


def _missing(checkpoint: Mapping) -> list[str]:
    missing = [key for key in RESUMED if key not in checkpoint]
    meta = checkpoint.get('meta')
    if isinstance(meta, Mapping):
        missing += [f'meta.{key}' for key in ('epoch', 'iter') if key not in meta]
    held = ', '.join(map(str, list(checkpoint)[:8]))
    return [f'it has no {", ".join(missing)}, only {held}'] if missing else []


def _meta_faults(meta: Mapping) -> Iterator[str]:
    if not isinstance(meta, Mapping):
        yield f'meta is a {type(meta).__name__}'
        return
    for key in ('epoch', 'iter'):
        if not is_whole(meta[key], 0):
            yield f'meta.{key} is {meta[key]!r}'
    seed = meta.get('seed')
    if seed is not None and not is_whole(seed, 0):
        yield f'meta.seed is {seed!r}'


def _message_hub_faults(hub: Mapping) -> Iterator[str]:
    if not isinstance(hub, Mapping):
        yield f'message_hub is a {type(hub).__name__}'
        return
    for key in ('log_scalars', 'runtime_info', 'resumed_keys'):
        if not isinstance(hub.get(key), Mapping):
            yield f'message_hub.{key} is {hub.get(key)!r}'
            return
    for key, value in hub['log_scalars'].items():
        if not isinstance(value, HistoryBuffer):
            yield f'message_hub.log_scalars.{key} is a {type(value).__name__}'
    for key in ('stitch_histogram', 'stitch_scores'):
        value = hub['runtime_info'].get(key, {})
        if not isinstance(value, Mapping):
            yield f'message_hub.runtime_info.{key} is {value!r}'


def _optimizer_faults(checkpoint: Mapping, own: Optimizer | None) -> Iterator[str]:
    saved = checkpoint['optimizer']
    if not isinstance(saved, Mapping):
        yield f'optimizer is a {type(saved).__name__}'
        return
    if own is None:  # several optimizers, by their names
        return
    state, groups = saved.get('state'), saved.get('param_groups')
    if not isinstance(state, Mapping):
        yield f'optimizer.state is a {type(state).__name__}'
    elif not isinstance(groups, Sequence) or len(groups) != len(own.param_groups):
        yield f'optimizer.param_groups are not the {len(own.param_groups)} of the model'
    else:
        yield from _group_faults(groups, own)
        momentum = any('betas' in g or g.get('momentum') for g in own.param_groups)
        if momentum and not state and checkpoint['meta']['iter'] > 0:
            yield 'optimizer.state is empty'
        yield from _moment_faults(state, own)


def _group_faults(groups: Sequence[Mapping], own: Optimizer) -> Iterator[str]:
    for i, (group, wanted) in enumerate(zip(groups, own.param_groups, strict=True)):
        if not isinstance(group, Mapping):
            yield f'optimizer.param_groups.{i} is a {type(group).__name__}'
            continue
        params = group.get('params')
        if not isinstance(params, Sequence) or len(params) != len(wanted['params']):
            yield f'optimizer.param_groups.{i} is of other parameters than the model'
        for key in ('lr', 'weight_decay'):
            if key in wanted and not is_number(group.get(key)):
                yield f'optimizer.param_groups.{i}.{key} is {group.get(key)!r}'


def _moment_faults(state: Mapping, own: Optimizer) -> Iterator[str]:
    """Those of the moments that are kept of every parameter which was trained."""
    params = [p for group in own.param_groups for p in group['params']]
    names = next((set(m) for m in state.values() if isinstance(m, Mapping)), set())
    for i, moments in state.items():
        if not is_whole(i, 0) or i >= len(params):
            yield f'optimizer.state.{i} is of no parameter of the model'
        elif not isinstance(moments, Mapping) or set(moments) != names:
            yield f'optimizer.state.{i} is not as that of other parameters'
        else:
            for key, value in moments.items():
                if not _is_moment(key, value, params[i]):
                    yield f'optimizer.state.{i}.{key} does not fit the parameter'


def _is_moment(key: str, value: object, param: Tensor) -> bool:
    if not isinstance(value, Tensor):
        return is_number(value) if key == 'step' else value is None
    fits = value.ndim == 0 or value.shape == param.shape
    return fits and not value.is_complex() and bool(value.isfinite().all())
