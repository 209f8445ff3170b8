"""What was killed at any moment goes on as if nothing had happened."""

import json
import random

import pytest
from equality import assert_same
from killing import fork, wait
from mmengine.runner import Runner
from PIL import Image

from snnet_mm.utils import load_weights_only

KILLS = 3
OPEN = {
    '.pth': load_weights_only,
    '.json': lambda path: json.loads(path.read_text()),
    '.png': lambda path: Image.open(path).load(),
}


def assert_whole(folder):
    """Whatever has its final name is whole."""
    for path in folder.rglob('*'):
        if path.suffix in OPEN and path.name[0] != '.' and 'vis_data' not in path.parts:
            OPEN[path.suffix](path)
    note = folder / 'last_checkpoint'
    # mmengine writes it in place: a kill may leave it empty, which resuming knows.
    if note.exists() and (named := note.read_text()):
        load_weights_only(named)


def kill_often(work, folder, most, counted=None):
    """Kill work at random moments, then let it end.

    Of three kills one is at an event of the files of the name that is counted, and two
    are at any event.
    """
    rng = random.Random(3)
    for done in range(KILLS):
        event = rng.randint(1, most), None
        if done == 0 and counted:
            event = rng.randint(1, 3), counted
        killed = wait(fork(work, folder, *event))
        assert killed, 'it ended before it could be killed'
        assert_whole(folder)
    wait(fork(work, folder))
    assert_whole(folder)


def train(cfg, folder, iters, keep):
    def work():
        cfg.work_dir = str(folder)
        cfg.resume = True
        cfg.train_cfg.max_iters = iters
        cfg.default_hooks.checkpoint.max_keep_ckpts = keep
        Runner.from_cfg(cfg).train()

    return work


@pytest.fixture
def folders(tmp_path):
    """Of a run that is left alone, and of one that is killed."""
    for name in ('straight', 'killed'):
        (tmp_path / name).mkdir()
    return tmp_path / 'straight', tmp_path / 'killed'


@pytest.fixture
def cfg(run_cfg):
    run_cfg.train_dataloader.dataset.num_scenes = 8
    run_cfg.test_cfg.update(stitches='all', stitches_per_pass=1, resume=True)
    return run_cfg


@pytest.mark.slow
def test_training_ends_with_the_same_weights(cfg, folders):
    """One checkpoint is kept, and every third kill is in the middle of its writing."""
    iters = 2 + 4 * KILLS
    straight, killed = folders
    wait(fork(train(cfg, straight, iters, -1), straight))
    kill_often(train(cfg, killed, iters, 1), killed, 20, 'half written')
    wanted, found = (load_weights_only(f / f'iter_{iters}.pth') for f in folders)
    for key in ('state_dict', 'optimizer'):
        assert_same(found[key], wanted[key])
    old, new = (c['message_hub']['runtime_info'] for c in (wanted, found))
    assert old['stitch_histogram'] == new['stitch_histogram']
    assert sum(new['stitch_histogram'].values()) == iters
    # Nothing of what the kills left half-written; a kill in front of the removal of an
    # older checkpoint leaves that one, whole.
    assert not [p.name for p in killed.iterdir() if p.name.startswith('.')]


def evaluate(cfg, folder, checkpoint):
    def work():
        cfg.work_dir = str(folder)
        cfg.load_from = str(checkpoint)
        cfg.test_cfg.out_dir = str(folder / 'report')
        Runner.from_cfg(cfg).test()

    return work


@pytest.mark.slow
def test_an_evaluation_ends_with_the_same_results(cfg, folders, trained):
    straight, killed = folders
    cfg.test_dataloader.dataset.num_scenes = 2
    wait(fork(evaluate(cfg, straight, trained), straight))
    kill_often(evaluate(cfg, killed, trained), killed, 12)
    results = (folder / 'report/stitches.json' for folder in folders)
    wanted, found = (json.loads(path.read_text()) for path in results)
    assert found == wanted
    assert [s['id'] for s in found['stitches']] == [0, 1, 2, 4]
