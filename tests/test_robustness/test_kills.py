"""What was killed at any moment goes on as if nothing had happened."""

import json
import random

import pytest
from equality import assert_same
from killing import fork, wait
from mmengine.runner import Runner
from PIL import Image
from tiny import tiny_config

from snnet_mm.evaluation import loops
from snnet_mm.evaluation.metric_buffers import MetricBuffers
from snnet_mm.utils import load_weights_only

FEW = 3
MANY = pytest.param(20, marks=pytest.mark.slow)


def assert_whole(folder):
    """Whatever has its final name is whole."""
    for path in folder.rglob('*'):
        if path.name.startswith('.') or 'vis_data' in path.parts:
            continue
        if path.suffix == '.pth':
            load_weights_only(path)
        elif path.suffix == '.json':
            json.loads(path.read_text())
        elif path.suffix == '.png':
            Image.open(path).load()
    note = folder / 'last_checkpoint'
    if note.exists():
        load_weights_only(note.read_text())


def kill_often(work, folder, kills, most, seed, counted=None):
    """Kill work at random moments, then let it end.

    Of three kills one is at an event of the files of the name that is counted, one at
    any event, and one at a random time.
    """
    rng, done, attempts = random.Random(seed), 0, 0
    while done < kills:
        attempts += 1
        assert attempts < 3 * kills, 'it ended before it could be killed'
        if done % 3 == 0 and counted:
            killed = wait(fork(work, folder, rng.randint(1, 4), counted))
        elif done % 3 < 2:
            killed = wait(fork(work, folder, rng.randint(1, most)))
        else:
            killed = wait(fork(work, folder), seconds=rng.uniform(0.1, 1))
        done += killed
        assert_whole(folder)
        if not killed:
            break
    wait(fork(work, folder))
    assert_whole(folder)
    return done


@pytest.fixture(scope='module', autouse=True)
def everything_is_imported(tmp_path_factory):
    """Once, and not in every process."""
    cfg = tiny_config()
    cfg.work_dir = str(tmp_path_factory.mktemp('first'))
    cfg.test_dataloader.dataset.num_scenes = 1
    runner = Runner.from_cfg(cfg)
    runner.train()
    runner.test()


@pytest.fixture
def config(tmp_path):
    cfg = tiny_config()
    cfg.experiment_name = tmp_path.name
    cfg.visualizer.name = tmp_path.name
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.train_dataloader.dataset.num_scenes = 8
    cfg.test_dataloader.update(batch_size=1)
    cfg.test_dataloader.dataset.num_scenes = 12
    cfg.test_cfg.update(stitches='all', stitches_per_pass=2, resume=True)
    return cfg


def train(cfg, folder, iters, keep):
    def work():
        cfg.work_dir = str(folder)
        cfg.resume = True
        cfg.train_cfg.max_iters = iters
        cfg.default_hooks.checkpoint.max_keep_ckpts = keep
        Runner.from_cfg(cfg).train()

    return work


@pytest.mark.parametrize('kills', [FEW, MANY])
def test_training_ends_with_the_same_weights(kills, config, tmp_path):
    """One checkpoint is kept, and every third kill is in the middle of its writing."""
    iters = 2 + 3 * kills
    straight, killed = tmp_path / 'straight', tmp_path / 'killed'
    for folder in (straight, killed):
        folder.mkdir()
    wait(fork(train(config, straight, iters, -1), straight))
    work = train(config, killed, iters, 1)
    done = kill_often(work, killed, kills, 20, kills, counted='half written')
    assert done == kills
    wanted, found = (
        load_weights_only(folder / f'iter_{iters}.pth') for folder in (straight, killed)
    )
    for key in ('state_dict', 'optimizer'):
        assert_same(found[key], wanted[key])
    histograms = [
        c['message_hub']['runtime_info']['stitch_histogram'] for c in (wanted, found)
    ]
    assert histograms[0] == histograms[1]
    assert sum(histograms[0].values()) == iters
    # Nothing of what the kills left half-written; a kill in front of the removal of an
    # older checkpoint leaves that one, whole.
    assert not [p.name for p in killed.iterdir() if p.name.startswith('.')]


def evaluate(cfg, folder, checkpoint):
    def work():
        loops.MetricBuffers = lambda *args: MetricBuffers(*args, interval=2)
        cfg.work_dir = str(folder)
        cfg.load_from = str(checkpoint)
        cfg.test_cfg.out_dir = str(folder / 'report')
        Runner.from_cfg(cfg).test()

    return work


@pytest.mark.parametrize('kills', [FEW, MANY])
def test_an_evaluation_ends_with_the_same_results(kills, config, tmp_path):
    straight, killed = tmp_path / 'straight', tmp_path / 'killed'
    for folder in (straight, killed):
        folder.mkdir()
    config.default_hooks.checkpoint.interval = 2
    wait(fork(train(config, straight, 2, 1), straight))
    checkpoint = straight / 'iter_2.pth'
    config.resume = False
    config.test_dataloader.dataset.num_scenes = 6 + 4 * kills
    wait(fork(evaluate(config, straight, checkpoint), straight))
    done = kill_often(evaluate(config, killed, checkpoint), killed, kills, 12, kills)
    assert done == kills
    wanted, found = (
        json.loads((folder / 'report/stitches.json').read_text())
        for folder in (straight, killed)
    )
    assert found == wanted
    assert [s['id'] for s in found['stitches']] == [0, 1, 2, 4]
    assert not (killed / 'partial_test').exists()
