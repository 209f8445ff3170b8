"""Compare two commits on the toy configs: ``tools/research/same.py A B``.

Every config trains for a few iterations and is tested, and plain networks are made
elastic. Losses, weights, costs, metrics, maps of the backbone and predictions must be
equal, bit for bit. Only public functions are called, so that both commits may be
organised in different ways. Exits with 1 if anything differs.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES, SIZE = 4, (64, 64)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition(': ``')[0])
    add = parser.add_argument
    add('commits', nargs=2, help="commits, or '.' for the working tree")
    what = 'configs of configs/toy to run (default: %(default)s)'
    add('--only', default='*.py', metavar='GLOB', help=what)
    what = 'iterations of each training (default: %(default)s)'
    add('--iters', type=int, default=4, help=what)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sides = [run(commit, args, folder) for commit in args.commits]
    names = sorted({*sides[0], *sides[1]})
    other = [name for name in names if sides[0].get(name) != sides[1].get(name)]
    for name in other:
        values = [str(side.get(name, 'absent'))[:60] for side in sides]
        print(f'{name}: {values[0]} / {values[1]}')
    print(f'{len(names) - len(other)} of {len(names)} values are equal')
    sys.exit(bool(other))


def run(commit: str, args: argparse.Namespace, folder: str) -> dict[str, object]:
    """Return the values of a commit, computed by a process with its code."""
    tree, added = ROOT, commit != '.'
    if added:
        tree = Path(folder, f'tree-{commit.replace("/", "-")}')
        git('worktree', 'add', '--quiet', '--force', '--detach', str(tree), commit)
    try:
        found = {}
        for path in sorted(Path(tree, 'configs/toy').glob(args.only)):
            found.update(probed(path, tree, args.iters))
            print(f'{commit}: {path.stem}', flush=True)
    finally:
        if added:
            git('worktree', 'remove', '--force', str(tree))
    return found


def probed(path: Path, tree: Path, iters: int) -> dict[str, object]:
    """Return the values of a config, computed in a process of its own.

    In one process, mmengine would give all runs the visualizer of the first.
    """
    env = dict(os.environ, PYTHONPATH=str(tree), OMP_NUM_THREADS='1')
    # The probe is that of this tree, for both commits.
    code = f'import sys; sys.path.insert(1, {str(ROOT / "tools/research")!r}); '
    code += f'import same; same.probe({str(path)!r}, {iters})'
    command = [sys.executable, '-c', code]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'{path} failed:\n{done.stderr[-3000:]}')
    return dict(json.loads(done.stdout.splitlines()[-1]))


def git(*args: str) -> None:
    subprocess.run(['git', '-C', str(ROOT), *args], check=True)


def probe(path: str, iters: int) -> None:
    """Print the names and values of a config as one line of JSON."""
    path = Path(path)
    with tempfile.TemporaryDirectory() as folder:
        pairs = values_of(path, iters, Path(folder))
        print(json.dumps([(f'{path.stem}: {name}', value) for name, value in pairs]))


def values_of(path: Path, iters: int, folder: Path) -> Iterator[tuple[str, object]]:
    """Yield names and values of what a config trains, tests and predicts."""
    import numpy as np
    import torch

    import snnet_mm as sn

    cfg = without_checkpoints(path)
    cfg.dump(config := folder / path.name)
    checkpoint = sn.train(config, folder / 'train', iters=iters)
    yield from losses(folder / 'train')
    yield from weights(checkpoint)
    stitched = cfg.model.backbone.get('anchors') is not None
    if not stitched:
        elastic = folder / 'elastic'
        options = dict(budgets='75%,40%', num_images=16)
        try:
            sn.make_elastic(config, checkpoint, elastic, **options)
        except ValueError as error:  # such as of a network with too few blocks
            yield 'elastic refused', str(error)
            return
        config, checkpoint = elastic / 'elastic.py', elastic / 'elastic.pth'
        yield from (('elastic ' + n, v) for n, v in weights(checkpoint))
    table = sn.evaluate(config, checkpoint, 'all', folder / 'test', limit=IMAGES)
    model = sn.load(config, checkpoint, device='cpu')
    image = np.random.default_rng(0).integers(0, 256, (*SIZE, 3)).astype(np.uint8)
    inputs = torch.from_numpy(image).permute(2, 0, 1)[None] / 255
    for row in table.rows:
        name = f'stitch {row.id}'
        yield f'{name} costs', [row.flops, row.params]
        yield f'{name} metrics', {k: repr(v) for k, v in sorted(row.metrics.items())}
        sn.set_stitch(model, row.id)
        with torch.no_grad():
            yield f'{name} maps', digest(model.backbone(inputs))
        # The toy pipelines of detectors have no step that notes the image's scale.
        if cfg.default_scope != 'mmdet':
            yield f'{name} prediction', digest(sn.predict(model, image))


def without_checkpoints(path: Path):
    """Read a config without the checkpoints that another training must write first."""
    from mmengine.config import Config, ConfigDict

    def visit(node: object) -> None:
        children = node.values() if isinstance(node, ConfigDict) else node
        for child in children:
            if isinstance(child, ConfigDict) and 'checkpoint' in (
                child.get('init_cfg') or ()
            ):
                child.init_cfg = None
            if isinstance(child, (ConfigDict, list)):
                visit(child)

    cfg = Config.fromfile(path)
    visit(cfg._cfg_dict)
    cfg.load_from = None
    return cfg


def losses(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the losses that a training logged."""
    for path in sorted(folder.glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            logged = json.loads(line)
            for key, value in logged.items():
                if 'loss' in key:
                    yield f'{key} of step {logged.get("step")}', repr(value)


def weights(checkpoint: str | os.PathLike) -> Iterator[tuple[str, str]]:
    """Yield a digest of every weight and buffer of a checkpoint."""
    import torch

    state = torch.load(checkpoint, map_location='cpu', weights_only=False)
    for key, tensor in state.get('state_dict', state).items():
        yield f'weight {key}', digest(tensor)


def digest(value: object) -> str:
    """Return a digest of the arrays and tensors in nested sequences and objects."""
    found = hashlib.sha256()

    def add(part: object) -> None:
        if hasattr(part, 'detach'):
            part = part.detach().cpu().numpy()
        if hasattr(part, 'tobytes'):
            found.update(f'{part.shape}{part.dtype}'.encode() + part.tobytes())
        elif isinstance(part, (list, tuple)):
            for item in part:
                add(item)
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()[:16]


if __name__ == '__main__':
    main()
