"""Runs of ``untrained.py``: tests of the methods, and lines of the table."""

import argparse
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from untrained_methods import METHODS, block_plans, size_plans
from untrained_network import Network, Variant

import snnet_mm as sn
from snnet_mm.costs import size_name
from snnet_mm.elastic import ImageBatches, make_elastic
from snnet_mm.evaluation.image_scores import ImageScores, resampled_images
from snnet_mm.evaluation.metric_buffers import MetricBuffers
from snnet_mm.models.init_model import init_model
from snnet_mm.stitching import StitchTable, key_metric
from snnet_mm.training.run import test
from snnet_mm.training.trial import evaluator_of
from snnet_mm.utils import check, guard_checkpoints, load_config, write_json

NUM_RESAMPLES = 1000
COMPARED = 24  # images, by whose predictions settings of a method are chosen
NETWORK, OURS, TRAINED, SEARCH = 'network', 'ours', 0.5, 'search.json'
IDENTITY = 'config', 'budgets', 'of_branches', 'images', 'cfg_options'
Found = tuple[list[dict], ImageScores | None]  # rows of variants, and their images


class Comparison:
    """All methods on one network; results of each are kept in a folder.

    Args:
        args: Arguments of ``untrained.py``.
        checkpoint: Checkpoint of the network.
        folder: Folder of the results.
    """

    def __init__(self, args: argparse.Namespace, checkpoint: str, folder: Path) -> None:
        self.args, self.checkpoint, self.folder = args, checkpoint, folder
        settings = {name: str(getattr(args, name)) for name in IDENTITY}
        settings |= dict(checkpoint=str(checkpoint))
        path = folder / 'settings.json'
        same = not path.is_file() or json.loads(path.read_text()) == settings
        check(
            same, 'option: --run', args.run, f'a new name, as {path} has other values'
        )
        write_json(path, settings)
        self.shares = [percent / 100 for percent in args.budgets]

    @cached_property
    def net(self) -> Network:
        """The network, which only methods that are not known yet need."""
        args = self.args
        cfg = load_config(args.config, args.cfg_options)
        with guard_checkpoints():
            network = init_model(cfg, self.checkpoint, device='cpu')
        images = ImageBatches(cfg, network)
        fitted = images.draw(args.images)
        compared = images.draw(COMPARED, skip=len(fitted))
        return Network(network, [*fitted], [*compared], self.shares, args.of_branches)

    @torch.no_grad()
    def run(self, method: str) -> None:
        """Run and test a method, unless its results are known."""
        path = self.folder / f'{method}.json'
        if path.is_file():
            return
        print(f'{self.folder}: {method}', flush=True)
        own = getattr(self, method, None)
        rows, images = own() if own else self._tested([*METHODS[method](self.net)])
        if images is not None:
            images.save(path.with_suffix('.npz'))
        write_json(path, rows)

    def _tested(self, variants: Sequence[Variant]) -> Found:
        """Test variants in one pass over the test images."""
        if not variants:
            return [], None
        model, cfg = self.net.model, self.net.model.cfg
        scope = cfg.get('default_scope') or 'mmengine'
        with DefaultScope.overwrite_default_scope(scope):
            loader = Runner.build_dataloader(cfg.test_dataloader, seed=0)
            evaluator = evaluator_of(cfg.test_evaluator)
            evaluator.dataset_meta = getattr(loader.dataset, 'metainfo', {})
            buffers = MetricBuffers(evaluator, range(len(variants)))

            def switch(i: int) -> None:
                model.backbone.forward = variants[i].run

            try:
                for batch in loader:
                    for _ in buffers.predict(model, batch, switch):
                        pass
            finally:
                del model.backbone.forward
            logger = MMLogger.get_current_instance()
            scores = buffers.scores(logger, len(loader.dataset))
        rows = [
            row_of(*v[:4], self.net.size, scores[i].metrics)
            for i, v in enumerate(variants)
        ]
        parts = [scores[i].images for i in range(len(variants))]
        return rows, ImageScores.stack(parts) if all(parts) else None

    def ours(self) -> Found:
        """The network, and the budgets of make_elastic."""
        return self._elastic(OURS, OURS, self.shares, budgets=self._limits())

    def one_size(self) -> Found:
        """The same without smaller images, from the branches measured before."""
        known, folder = self.folder / OURS / SEARCH, self.folder / 'one_size'
        if known.is_file():
            folder.mkdir(exist_ok=True)
            shutil.copy(known, folder)
        options = dict(budgets=self._limits(), sizes=(1,))
        return self._elastic(folder.name, 'ours, one size', self.shares, **options)

    def _limits(self) -> list[str]:
        return [f'{self.net.limit(share) / 1e9:.6f}G' for share in self.shares]

    def blocks(self) -> Found:
        """Whole blocks, by make_elastic."""
        return self._planned('blocks', 'whole blocks', block_plans(self.net))

    def sizes(self) -> Found:
        """The whole network on smaller images, by make_elastic."""
        return self._planned('sizes', 'smaller images', size_plans(self.net))

    def _planned(self, name: str, kind: str, plans: dict[float, str]) -> Found:
        chains = [*dict.fromkeys(plans.values())]
        rows, images = self._elastic(name, kind, plans, plans=chains)
        return rows[1:], images and _part(images, range(1, len(rows)))

    def _elastic(self, name: str, kind: str, shares: Iterable, **options) -> Found:
        """Return the network, and the largest chain within each budget."""
        folder, args = self.folder / name, self.args
        if not (folder / 'stitches.json').is_file():
            options |= dict(num_images=args.images, device='cpu', force=True)
            options |= dict(cfg_options=args.cfg_options)
            make_elastic(args.config, self.checkpoint, folder, **options)
        table, rows = StitchTable.read(folder / 'stitches.json'), []
        whole = max(table.rows, key=lambda row: row.flops)
        for share in (1, *shares):
            limit = 1.0001 * self.net.limit(share)  # which is written with few digits
            within = [row for row in table.rows if row.flops <= limit]
            row = whole if share == 1 else max(within, key=lambda row: row.flops)
            about = row.flops, row.input_size, row.metrics
            label = NETWORK if share == 1 else kind
            rows.append(row_of(label, share, row.route, *about, id=row.id))
        path = folder / 'per_image.npz'
        if not path.is_file():
            return rows, None
        images = ImageScores.read(path, table)
        return rows, _part(images, [images.ids.index(row['id']) for row in rows])

    def int8(self) -> Found:
        """The network as a graph in int8, beside that in float32."""
        model = sn.load(self.folder / OURS, stitch=0, device='cpu')
        options = dict(precisions=('fp32', 'int8'), verify_on='test')
        manifest = sn.export(model, self.folder / 'int8', 0, **options)
        rows = []
        for file in manifest['stitches'][0]['files']:
            found, precision = file['verified'], file['precision']
            low, high = found['interval'] or (None, None)
            against = found['value'] - found['pytorch']
            interval = dict(against=against, low=low, high=high)
            about = self.net.flops, self.net.size, found['metrics']
            more = dict(ms=found['ms'], precision=precision, **interval)
            rows.append(row_of(precision, 1, 'ONNX Runtime', *about, **more))
        return rows, None

    def trained(self) -> Found:
        """The chain of half of the FLOPs, trained for as long as the network."""
        folder = self.folder
        rows = json.loads((folder / f'{OURS}.json').read_text())
        row = next(row for row in rows if row['share'] == TRAINED)
        chain, name = folder / 'chain', f'stitch_{row["id"]}'
        if not (chain / f'{name}.py').is_file():
            model = sn.load(folder / OURS, device='cpu')
            sn.export(model, chain, row['id'], formats=('mm',))
        config, work_dir = chain / f'{name}.py', folder / 'chain-trained'
        if (work_dir / 'last_checkpoint').is_file():
            start = dict(resume=True)
        else:
            start = dict(cfg_options=dict(load_from=str(chain / f'{name}.pth')))
        with torch.enable_grad():
            checkpoint = sn.train(config, work_dir, **start)
        test(config, checkpoint, tested := folder / 'chain-tested')
        table = StitchTable.read(tested / 'results.json')
        about = row['flops'], row['size'], table.rows[0].metrics
        path = tested / 'per_image.npz'
        images = ImageScores.read(path, table) if path.is_file() else None
        return [row_of('trained', TRAINED, row['setting'], *about)], images


def row_of(
    method: str,
    share: float,
    setting: str,
    flops: int,
    size: Sequence[int],
    metrics: dict[str, float],
    **more: object,
) -> dict:
    """Return the row of a tested variant."""
    about = dict(method=method, share=share, setting=setting, flops=int(flops))
    metrics = {name: float(value) for name, value in metrics.items()}
    return about | dict(size=[*size], metrics=metrics) | more


def _part(images: ImageScores, places: Sequence[int]) -> ImageScores:
    """Return the statistics of some variants."""
    ids = tuple(range(len(places)))
    above, below = images.numerators[[*places]], images.denominators[[*places]]
    return ImageScores(
        images.metric, ids, above, below, images.scale, images.names, images.digest
    )


class Entry(NamedTuple):
    """A tested variant: its row, its score, and its score in resamples, if known.

    The first of ``scores`` is of all images.
    """

    row: dict
    score: float
    scores: np.ndarray | None


def entries_of(folder: Path, methods: Sequence[str]) -> dict[tuple, Entry]:
    """Return the variants of one network, by method and budget."""
    found, weights = {}, None
    for method in methods:
        path = folder / f'{method}.json'
        if not path.is_file():
            continue
        rows, values = json.loads(path.read_text()), None
        if path.with_suffix('.npz').is_file():
            images = ImageScores.read(path.with_suffix('.npz'))
            if weights is None:
                number = images.numerators.shape[1]
                resampled = resampled_images(number, NUM_RESAMPLES)
                weights = np.concatenate([np.full((1, number), 1 / number), resampled])
            values = images.scores(weights)
        for n, row in enumerate(rows):
            score = row['metrics'][key_metric(row['metrics'])]
            scores = None if values is None else values[:, n]
            found[row['method'], row['share']] = Entry(row, score, scores)
    return found


def differences(entries: dict[tuple, Entry]) -> dict[tuple, np.ndarray]:
    """Return scores minus those of the line through the network and our budgets.

    The first is of all images, the others are of resamples, if known. Variants cheaper
    than our smallest are omitted.
    """
    line = [e for (kind, _), e in entries.items() if kind in (NETWORK, OURS)]
    line = sorted(line, key=lambda entry: entry.row['flops'])
    costs, found = [entry.row['flops'] for entry in line], {}
    for key, entry in entries.items():
        flops = entry.row['flops']
        if key[0] in (NETWORK, OURS) or flops < costs[0] or 'against' in entry.row:
            continue
        known = entry.scores is not None and line[0].scores is not None
        values = entry.scores if known else np.array([entry.score])
        of_line = [e.scores if known else np.array([e.score]) for e in line]
        at = [np.interp(flops, costs, draw) for draw in np.transpose(of_line)]
        found[key] = values - at
    return found


def lines_of(
    folders: Sequence[Path], methods: Sequence[str]
) -> Iterator[dict[str, str]]:
    """Yield the lines of the table: of every seed, then of the mean over the seeds."""
    seeds = [entries_of(folder, methods) for folder in folders]
    gaps = [differences(entries) for entries in seeds]
    keys = list(seeds[0])
    for seed, (entries, gap) in enumerate(zip(seeds, gaps, strict=True)):
        for key in keys:
            if key in entries:
                yield _line(str(seed), key, [entries], [gap])
    if len(seeds) > 1:
        for key in keys:
            if all(key in entries for entries in seeds):
                yield _line('mean', key, seeds, gaps)


def _line(
    seed: str, key: tuple, seeds: Sequence[dict], gaps: Sequence[dict]
) -> dict[str, str]:
    rows = [entries[key].row for entries in seeds]
    whole = [entries[NETWORK, 1].score for entries in seeds]
    scores = [entries[key].score for entries in seeds]
    share = np.mean([100 * a / b for a, b in zip(scores, whole, strict=True)])
    sizes, settings = {tuple(row['size']) for row in rows}, {r['setting'] for r in rows}
    times = [row['ms'] for row in rows if row.get('ms')]
    interval: dict[str, float | None] = {}
    if 'against' in rows[0]:
        interval = {n: rows[0][n] for n in ('against', 'low', 'high')}
        if len(rows) > 1:
            interval = dict(against=np.mean([row['against'] for row in rows]))
    elif all(key in gap for gap in gaps):
        values = np.mean([gap[key] for gap in gaps], axis=0)
        interval = dict(against=values[0])
        if len(values) > 1:
            low, high = np.nanpercentile(values[1:], [2.5, 97.5])
            interval |= dict(low=low, high=high)
    about = dict(
        seed=seed,
        device='cpu',
        size=size_name(sizes.pop()) if len(sizes) == 1 else '',
        precision=rows[0].get('precision', 'fp32'),
        stitch='',
        kind=key[0],
        budget=f'{100 * key[1]:g}%',
        route=settings.pop() if len(settings) == 1 else '',
        gflops=_text(np.mean([row['flops'] for row in rows]) / 1e9),
        ms=_text(np.mean(times)) if times else '',
        metric=key_metric(rows[0]['metrics']),
        score=_text(np.mean(scores)),
        share=_text(share),
    )
    return about | {
        name: '' if interval.get(name) is None else _text(interval[name])
        for name in ('against', 'low', 'high')
    }


def _text(value: float) -> str:
    return f'{value:.6g}'
