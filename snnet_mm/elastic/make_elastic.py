"""Convert a trained model into its elastic version."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.runner import Runner, find_latest_checkpoint
from torch import nn

from snnet_mm.costs import cost_table, measure_latency
from snnet_mm.costs.measure import measuring_setup
from snnet_mm.evaluation import plot_pareto, wide_console
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import find_stitched_backbone, fit_in_turn
from snnet_mm.stitching import StitchResults, is_budget, parse_budget
from snnet_mm.tasks import task_of
from snnet_mm.training import try_test
from snnet_mm.training.build_runner import build_runner
from snnet_mm.utils import (
    atomic_path,
    check,
    check_writable,
    digest,
    guard_checkpoints,
    is_whole,
    load_config,
    load_weights_only,
    read_json,
    work_dir_lock,
    write_json,
)
from snnet_mm.utils.base_checkpoint import digest_of, save_added, with_prefixes
from snnet_mm.utils.checkpoints import check_local, weights_of
from snnet_mm.utils.configs import keep_local_backends
from snnet_mm.utils.registered_names import name_types

from .convert import Budgets, Conversion, check_equal, convert_model, own_heads
from .images import ImageBatches, unlabelled_dataset
from .report import (
    draw_predictions,
    drawn_budgets,
    elastic_table,
    left_out,
    next_commands,
)
from .search import ChainSearch, choose_lengths, images_wanted
from .tuning import tuning_config

# Images that maps are fitted on. Classifiers need more: each of their images has one
# cls token and few patches.
NUM_IMAGES, OF_CLASSIFIERS = 64, 500
LABELS_WEIGHT = 1  # of label losses, added to the divergence from the network
# If a number of budgets is given, the search stops at this share of the FLOPs.
LEAST_SHARE = 0.2


def make_elastic(
    config: str | os.PathLike | Config,
    checkpoint: str | os.PathLike,
    work_dir: str | os.PathLike,
    images: str | os.PathLike | None = None,
    budgets: int | str | Sequence[str] = 5,
    keep: Sequence[int] = (),
    blocks: Sequence[Sequence[int]] = (),
    own: Sequence[int] = (),
    iters: int = 0,
    labels: bool = False,
    rate: float = 1e-4,
    num_images: int | None = None,
    whole: bool = False,
    seed: int = 0,
    device: str | None = None,
    cfg_options: dict | None = None,
    say: Callable[[str], None] = print,
) -> StitchResults:
    """Add smaller budgets to a trained model without changing it.

    Each budget skips some blocks of the backbone, and one affine map replaces each run
    of skipped blocks. Maps are fitted by least squares on unlabelled images. The search
    skips the blocks whose absence changes the predictions least. Stitch 0 of the result
    equals the model bit for bit.

    The files in ``work_dir`` are ``elastic.py`` and ``elastic.pth``, the config and
    checkpoint for all tools; ``search.json``, from which an interrupted call resumes;
    and test results of all budgets: ``stitches.json``, ``pareto.png`` and
    ``predictions.png``.

    Args:
        config: Config of a segmentation, depth, detection or classification model of
            mmseg, mmdet or mmpretrain.
        checkpoint: Its checkpoint.
        work_dir: Output folder.
        images: Folder of unlabelled images. Default: the training images.
        budgets: Number of budgets below the network, or the budgets themselves, such as
            ``'10ms,20ms'`` on this device or ``'3G'``.
        keep: Numbers of blocks to keep, instead of ``budgets``.
        blocks: Blocks that each chain keeps, instead of a search.
        own: Numbers of blocks. Chains of these lengths get their own copies of the
            network's blocks, which ``iters`` trains and the checkpoint stores.
        iters: Tuning iterations of the maps, and of each chain with its own blocks. The
            network stays frozen.
        labels: Whether tuning learns from labels as well as from the network. If so,
            chains of segmentation, depth and classification models get their own copy
            of the head, which learns at ten times ``rate``.
        rate: Peak learning rate of tuning.
        num_images: Number of images that maps are fitted on. Default: 64, or 500 for
            classifiers, whose images have one cls token and few patches.
        whole: Whether ``elastic.pth`` includes the network. Otherwise it records the
            path and digest of the checkpoint, and loading checks both.
        seed: Seed of the choice of images and of training.
        device: Device, such as ``'cpu'`` or ``'cuda'``. Default: the best available.
        cfg_options: Settings to override in the config.
        say: Called with one line of progress per step.

    Returns:
        Results of the network and all budgets, with latencies on the device in ms.

    Raises:
        ValueError: If the model, a budget or an image is unsuitable; the message names
            the value and the option.

    Examples:
        >>> results = make_elastic('segformer.py', 'segformer.pth', 'work_dirs/elastic')
        >>> model = init_model(
        ...     'work_dirs/elastic/elastic.py',
        ...     'work_dirs/elastic/elastic.pth',
        ...     stitch=3,
        ... )
    """
    check_local(checkpoint)
    given = isinstance(config, Config)
    cfg = name_types(config) if given else load_config(config, cfg_options)
    check(is_whole(iters, 0), '--iters', iters, '0 or more')
    wanted = 'no folder with --labels'
    check(not labels or images is None, '--images', images, wanted)
    check(rate > 0, '--rate', rate, 'more than 0')
    check(iters or not labels, '--iters', iters, '1 or more with --labels')
    check(iters or not own, '--iters', iters, '1 or more with --own, which it trains')
    if lengths := [*keep, *map(len, blocks)]:
        _check_own(own, lengths)
    folder = check_writable(work_dir, 'option: --work-dir')
    with guard_checkpoints(), work_dir_lock(folder):
        job = _Job(cfg, Path(checkpoint), folder, images, seed, device, say)
        chains = job.choose(budgets, keep, blocks)
        job.fit(chains, num_images, whole, own, labels)
        if iters:
            job.tune(iters, whole, labels, rate)
        return job.evaluate()


class _Job:
    """The steps of :func:`make_elastic` and their shared state."""

    def __init__(
        self,
        cfg: Config,
        checkpoint: Path,
        folder: Path,
        images: str | os.PathLike | None,
        seed: int,
        device: str | None,
        say: Callable[[str], None],
    ) -> None:
        self.cfg, self.checkpoint, self.folder = cfg, checkpoint, folder
        self.images, self.seed, self.device, self.say = images, seed, device, say
        written = folder / 'elastic.pth'
        other = not written.exists() or not written.samefile(checkpoint)
        check(other, '--work-dir', folder, f'a folder without {checkpoint}')
        self.model = init_model(cfg, checkpoint, device=device)
        try_test(cfg, self.model)
        self.meta = dict(dataset_meta=self.model.dataset_meta)
        self.weights = self.model.state_dict()
        self.conversion: Conversion = convert_model(cfg, self.model)
        self.few = ImageBatches(cfg, self.model, 1, images, seed)
        sample = next(iter(self.few))
        self.size = tuple(sample.shape[-2:])
        elastic = self.build([])
        check_equal(self.model, elastic, sample)
        self.anchor = find_stitched_backbone(elastic).anchors[0]
        kind = type(self.model.backbone).__name__
        say(f'{kind} with {self.anchor.depth} blocks: features are equal bit for bit')

    def build(self, chains: Sequence[Sequence[int]]) -> nn.Module:
        """Build the elastic model of some chains with the network's weights."""
        return self.conversion.build(self.cfg, Budgets(chains), self.model)

    def choose(
        self,
        budgets: int | str | Sequence[str],
        keep: Sequence[int],
        blocks: Sequence[Sequence[int]],
    ) -> list[tuple[int, ...]]:
        """Return the chains of the budgets."""
        if blocks:
            chains = [tuple(sorted(chain)) for chain in blocks]
            once = len({*chains}) == len(chains)
            check(
                once, '--blocks', list(map(list, chains)), 'different blocks each time'
            )
            return chains
        if isinstance(budgets, str):
            budgets = int(budgets) if budgets.isdecimal() else budgets.split(',')
        positive = not isinstance(budgets, int) or budgets > 0
        check(positive, '--budgets', budgets, '1 or more')
        for budget in () if isinstance(budgets, int) else budgets:
            check(is_budget(budget), '--budgets', budget, 'a number, 20ms or 3G')
        depth = self.anchor.depth
        check(depth > 1, 'model.backbone', f'{depth} block', '2 blocks or more')
        for number in keep:
            right = 1 <= number < depth
            check(right, '--keep', number, f'numbers of blocks from 1 to {depth - 1}')
        counted = isinstance(budgets, int) and not keep
        found = self._search(min(keep, default=1), LEAST_SHARE if counted else 0)
        if keep:
            least = min(found)
            check(min(keep) >= least, '--keep', min(keep), f'{least} blocks or more')
            return [found[number] for number in sorted(set(keep), reverse=True)]
        model = self.build([found[n] for n in sorted(found, reverse=True)])
        costs = cost_table(model, self.size)
        flops = costs.column('flops')
        lengths = dict(enumerate(sorted(found, reverse=True), start=1))
        if counted:
            by_length = {n: flops[i] for i, n in lengths.items()}
            chosen = choose_lengths(by_length, flops[0], budgets)
        else:
            times = None
            if any(b.endswith('ms') for b in budgets):
                times = measure_latency(model, self.size, check=()).by_stitch
            columns = dict(flops=flops, latency=times, params=costs.column('params'))
            chosen = _within(budgets, lengths, columns)
        return [found[n] for n in chosen]

    def _search(self, fewest: int, least_share: float) -> dict[int, tuple[int, ...]]:
        """Return the best chain of each length; resume an interrupted search."""
        path, depth = self.folder / 'search.json', self.anchor.depth
        number = images_wanted(self.anchor, self.size)
        batches = ImageBatches(self.cfg, self.model, number, self.images, self.seed)
        identity = dict(
            network=digest_of(self.weights),
            images=batches.digest,
            size=list(self.size),
            seed=self.seed,
        )
        known: list[dict] = []
        if path.exists():
            what = 'search of blocks', 'tools/make_elastic.py'
            known = read_json(path, partial(_known_chains, identity), *what)
        self.say(f'Choosing blocks by the predictions for {len(batches)} images')
        search = ChainSearch(self.build([]), batches, self.size)
        least = least_share * search.total
        begin = search.chain(known[-1]['kept']) if known else None
        chains = {len(c['kept']): tuple(c['kept']) for c in known}
        for chain in search.run(fewest, begin, least):
            chains[len(chain.kept)] = chain.kept
            known.append(dict(kept=list(chain.kept), divergence=chain.divergence))
            write_json(path, dict(identity=identity, chains=known))
            share = search.flops(chain) / search.total
            self.say(
                f'  {len(chain.kept)} of {depth} blocks, {share:.0%} of the FLOPs: '
                f'{", ".join(map(str, chain.kept))}; divergence {chain.divergence:.4f}'
            )
        return chains

    def fit(
        self,
        chains: Sequence[Sequence[int]],
        num_images: int | None,
        whole: bool,
        own: Sequence[int] = (),
        heads: bool = False,
    ) -> None:
        """Fit the maps, and write config and checkpoint."""
        lengths = [len(chain) for chain in chains]
        _check_own(own, lengths)
        self.budgets = Budgets(
            [tuple(chain) for chain in chains],
            [i for i, n in enumerate(lengths, start=1) if n in own],
            own_heads(self.cfg, task_of(self.model)) if heads else (),
        )
        model = self.conversion.build(self.cfg, self.budgets, self.model)
        if num_images is None:
            classifies = task_of(model).name == 'classification'
            num_images = OF_CLASSIFIERS if classifies else NUM_IMAGES
        width = max(self.anchor.block_dims)
        batches = ImageBatches(self.cfg, model, num_images, self.images, self.seed)
        self.say(f'Fitting the maps of {len(chains)} chains on {len(batches)} images')
        seen = sum(len(b) * _places(b, self.anchor.block_strides[-1]) for b in batches)
        if seen < 2 * width:
            self.say(
                f'Warning: {len(batches)} images have {seen} tokens for maps of width '
                f'{width}; give more (--images, --num-images)'
            )
        fit_in_turn(
            find_stitched_backbone(model),
            batches,
            progress=lambda done, total: self.say(f'  step {done} of {total}'),
            folder=self.folder,
        )
        self._save(model.state_dict(), whole)

    def _save(self, state: dict[str, torch.Tensor], whole: bool) -> None:
        path = self.folder / 'elastic.pth'
        config = self.conversion.config(self.cfg, self.budgets, self.size)
        with atomic_path(self.folder / 'elastic.py') as temporary:
            config.dump(temporary)
        base = weights_of(load_weights_only(self.checkpoint))
        renames = self.conversion.renames(self.budgets.heads)
        old = with_prefixes(base, renames)
        new = {k: v for k, v in state.items() if whole or k not in old}
        if whole:
            with atomic_path(path) as temporary:
                torch.save(dict(meta=self.meta, state_dict=new), temporary)
            return
        save_added(path, new, self.checkpoint, base, renames, self.meta)

    def tune(self, iters: int, whole: bool, labels: bool, rate: float) -> None:
        """Train maps, then each chain with blocks of its own; write the checkpoint."""
        elastic = Config.fromfile(self.folder / 'elastic.py')
        data = None
        if self.images is not None:
            data = unlabelled_dataset(self.cfg, self.images)
        start = str(self.folder / 'elastic.pth')
        weight = LABELS_WEIGHT if labels else 0
        if labels and not self.budgets.heads:
            self.say('Heads stay frozen: labels train the maps alone')
        options = dict(iters=iters, labels=labels, rate=rate)
        for ids in self.budgets.groups:
            own = ids[0] in self.budgets.own
            what = f'stitch {ids[0]} and its blocks' if own else 'the maps'
            self.say(f'Tuning {what} for {iters} iterations; the network is frozen')
            cfg = tuning_config(elastic, start, ids, iters, weight, rate, data)
            name = f'tuning_{ids[0]}' if own else 'tuning'
            self._save(self._trained(cfg, name, options), whole)

    def _trained(self, cfg: Config, name: str, options: dict) -> dict:
        """Run or resume a training, and return the trained weights."""
        start, work_dir = Path(cfg.load_from), self.folder / name
        cfg.work_dir, cfg.randomness = str(work_dir), dict(seed=self.seed)
        begun = work_dir / 'begun.json'
        identity = dict(start=digest_of(weights_of(load_weights_only(start))))
        read = 'model', 'train_dataloader', 'optim_wrapper', 'param_scheduler'
        text = json.dumps([cfg.get(key) for key in read], default=str)
        identity |= dict(options, seed=self.seed, config=text)
        # mmengine would reuse an earlier visualizer of the same name, whose folder may
        # no longer exist.
        words = digest([str(work_dir), json.dumps(identity)])
        cfg.experiment_name = f'{name}_{words}'
        (cfg.get('visualizer') or {}).pop('name', None)
        same = begun.exists() and json.loads(begun.read_text()) == identity
        last = find_latest_checkpoint(work_dir) if same else None
        if last is not None:
            cfg.load_from, cfg.resume = last, True
        elif work_dir.exists():
            shutil.rmtree(work_dir)
        work_dir.mkdir(exist_ok=True)
        write_json(begun, identity)
        build_runner(cfg, 'train').train()
        return weights_of(load_weights_only(find_latest_checkpoint(cfg.work_dir)))

    def evaluate(self) -> StitchResults:
        """Test the network and all chains in one pass; measure milliseconds."""
        cfg = Config.fromfile(self.folder / 'elastic.py')
        # In the folder itself, the runner would overwrite elastic.py.
        cfg.work_dir = str(self.folder / 'test')
        cfg.load_from = str(self.folder / 'elastic.pth')
        cfg.test_cfg.update(out_dir=str(self.folder), quiet=True)
        keep_local_backends(cfg)
        self.say(
            f'Testing the network and {len(self.budgets.chains)} chains in one pass'
        )
        runner = build_runner(cfg, 'test')
        runner.test()
        results = StitchResults.read(self.folder / 'stitches.json')
        self.say('Measuring milliseconds')
        model = runner.model
        times = measure_latency(model, self.size, check=()).by_stitch
        setup = measuring_setup(model, 1)
        stitches = [replace(r, latency=times[r.id]) for r in results.stitches]
        results = replace(results, stitches=stitches, setup=setup)
        results.save(self.folder / 'stitches.json')
        self._report(runner, results)
        return results

    def _report(self, runner: Runner, results: StitchResults) -> None:
        counts = [self.anchor.depth, *map(len, self.budgets.chains)]
        wide_console().print(elastic_table(results, dict(enumerate(counts))))
        for line in left_out(results):
            self.say(line)
        plot_pareto(results, self.folder / 'pareto.png', cost='latency')
        rows = {r.id: r for r in results.stitches}
        titles = {
            i: f'{"network" if i == 0 else f"stitch {i}"}, {rows[i].latency:.3g} ms'
            for i in drawn_budgets(results)
        }
        draw_predictions(runner, titles, self.folder / 'predictions.png')
        self.say(f'Pictures: {self.folder}/pareto.png and predictions.png')
        self.say('Next:')
        for command in next_commands(self.folder, results):
            self.say(f'  {command}')


def _check_own(own: Sequence[int], lengths: Sequence[int]) -> None:
    for number in own:
        check(number in lengths, '--own', number, f'numbers of blocks in {lengths}')


def _known_chains(identity: dict, data: dict) -> list[dict]:
    """Return the chains of a search with the same identity, otherwise none."""
    chains = [
        dict(kept=[int(i) for i in c['kept']], divergence=float(c['divergence']))
        for c in data['chains']
    ]
    return chains if data['identity'] == identity else []


def _within(
    budgets: Sequence[str], lengths: dict[int, int], columns: dict[str, dict]
) -> list[int]:
    """Return the longest chain within each budget."""
    chosen = set()
    for text in budgets:
        budget = parse_budget(text, '--budgets')
        wanted = f'budgets in {[c for c, v in columns.items() if v]}'
        costs = columns.get(budget.cost)
        check(costs, '--budgets', text, wanted)
        fitting = [n for i, n in lengths.items() if costs[i] <= budget.limit]
        least = min(costs[i] for i in lengths)
        check(fitting, '--budgets', text, f'at least {least:.4g}, the fastest chain')
        chosen.add(max(fitting))
    return sorted(chosen, reverse=True)


def _places(batch: torch.Tensor, stride: int) -> int:
    height, width = batch.shape[-2:]
    return max(height // stride, 1) * max(width // stride, 1)
