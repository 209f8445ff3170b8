"""Runners that train a model of two parameters instantly."""

import os

import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner

SGD = dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9))


class Line(BaseModel):
    """A linear model, by default of two parameters."""

    def __init__(self, width=1):
        super().__init__()
        self.linear = torch.nn.Linear(width, 1)

    def forward(self, inputs, mode):
        y = self.linear(torch.stack(list(inputs)))
        return dict(loss=y.square().mean()) if mode == 'loss' else list(y)


class Scores(BaseMetric):
    """Returns preset scores, one for each validation."""

    def __init__(self, **scores):
        super().__init__()
        self.scores = {name: list(values) for name, values in scores.items()}

    def process(self, data_batch, data_samples):
        self.results.append(0)

    def compute_metrics(self, results):
        return {name: values.pop(0) for name, values in self.scores.items()}


def build_runner(work_dir, iters=3, scores=None, width=1, **kwargs):
    """Build a runner that by default saves after every iteration."""
    hook = dict(type='StitchCheckpointHook', by_epoch=False, interval=1)
    hook |= kwargs.pop('checkpoint', {})
    loader = dict(
        dataset=[dict(inputs=torch.ones(width))] * 2,
        sampler=dict(type='InfiniteSampler'),
        batch_size=1,
    )
    if scores:
        kwargs |= dict(
            val_dataloader=loader | dict(sampler=dict(type='DefaultSampler')),
            val_cfg=dict(),
            val_evaluator=[Scores(**scores)],
        )
    return Runner(
        model=Line(width),
        work_dir=str(work_dir),
        train_dataloader=loader,
        train_cfg=dict(by_epoch=False, max_iters=iters, val_interval=1),
        optim_wrapper=kwargs.pop('optim_wrapper', SGD),
        default_hooks=dict(checkpoint=hook),
        randomness=dict(seed=0),
        log_level='ERROR',
        experiment_name=f'{work_dir}-{len(os.listdir(work_dir))}',
        **kwargs,
    )


def train(work_dir, *args, **kwargs):
    work_dir.mkdir(exist_ok=True)
    runner = build_runner(work_dir, *args, **kwargs)
    runner.train()
    return runner


def files(folder):
    """Return the names of all files, hidden ones included, except the config."""
    paths = folder.iterdir()
    return sorted(p.name for p in paths if p.is_file() and p.suffix != '.py')


def step_of(path):
    return torch.load(path, weights_only=False)['meta']['iter']
