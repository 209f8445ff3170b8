"""What was killed at any moment goes on as if nothing had happened."""

import json
import random

import pytest
from equality import assert_same
from killing import fork, wait
from mmengine.runner import Runner

from snnet_mm.utils import load_weights_only

KILLS = 3


def assert_whole(folder):
    """Whatever has its final name is whole."""
    for path in folder.rglob('[!.]*'):
        if path.suffix == '.pth':
            load_weights_only(path)
        elif path.suffix == '.json' and 'vis_data' not in path.parts:
            json.loads(path.read_text())
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


@pytest.fixture
def folders(tmp_path):
    """Of a run that is left alone, and of one that is killed."""
    for name in ('straight', 'killed'):
        (tmp_path / name).mkdir()
    return tmp_path / 'straight', tmp_path / 'killed'


@pytest.mark.slow
def test_training_killed_ends_with_same_weights(run_cfg, folders):
    """One checkpoint is kept, and every third kill is in the middle of its writing."""
    cfg, iters = run_cfg, 2 + 4 * KILLS
    cfg.resume, cfg.train_cfg.max_iters = True, iters
    cfg.train_dataloader.dataset.num_scenes = 8
    cfg.default_hooks.checkpoint.max_keep_ckpts = 1

    def train(folder):
        cfg.work_dir = str(folder)
        Runner.from_cfg(cfg).train()

    straight, killed = folders
    wait(fork(lambda: train(straight), straight))
    kill_often(lambda: train(killed), killed, 20, 'half written')
    wanted, found = (load_weights_only(f / f'iter_{iters}.pth') for f in folders)
    for key in ('state_dict', 'optimizer'):
        assert_same(found[key], wanted[key])
    old, new = (c['message_hub']['runtime_info'] for c in (wanted, found))
    assert old['stitch_histogram'] == new['stitch_histogram']
    assert sum(new['stitch_histogram'].values()) == iters
    # Nothing of what the kills left half-written; a kill in front of the removal of an
    # older checkpoint leaves that one, whole.
    assert not [p.name for p in killed.iterdir() if p.name.startswith('.')]


@pytest.mark.slow
def test_evaluation_killed_ends_with_same_results(run_cfg, folders, trained):
    cfg, (straight, killed) = run_cfg, folders
    cfg.test_cfg.update(stitches='all', stitches_per_pass=1, resume=True)
    cfg.test_dataloader.dataset.num_scenes = 2
    cfg.load_from = str(trained)

    def evaluate(folder):
        cfg.work_dir, cfg.test_cfg.out_dir = str(folder), str(folder / 'report')
        Runner.from_cfg(cfg).test()

    wait(fork(lambda: evaluate(straight), straight))
    kill_often(lambda: evaluate(killed), killed, 12)
    results = (folder / 'report/stitches.json' for folder in folders)
    wanted, found = (json.loads(path.read_text()) for path in results)
    assert found == wanted
    assert [s['id'] for s in found['stitches']] == [0, 1, 2, 4]
