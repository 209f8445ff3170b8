"""Convert a trained model into its elastic version."""

import os
from collections.abc import Callable, Collection, Sequence

from mmengine.config import Config

from snnet_mm.models import explaining_out_of_memory
from snnet_mm.models.init_model import init_model
from snnet_mm.stitching import StitchTable
from snnet_mm.training import try_test
from snnet_mm.utils import (
    atomic_path,
    check,
    check_writable,
    guard_checkpoints,
    load_config,
    load_weights_only,
    quiet_coco,
    work_dir_lock,
)
from snnet_mm.utils.base_checkpoint import BaseCheckpoint
from snnet_mm.utils.checkpoints import weights_of
from snnet_mm.utils.configs import digest_of_settings, write_config
from snnet_mm.utils.registered_names import check_named

from .convert import check_equal, elastic_config, elastic_model, renames_of
from .image_batches import MAX_BATCH, ImageBatches
from .job import Job
from .runtime_costs import RUNS_IN, GraphTimes, check_runtime


def make_elastic(
    config: str | os.PathLike | Config,
    checkpoint: str | os.PathLike,
    work_dir: str | os.PathLike,
    images: str | os.PathLike | None = None,
    budgets: str | Sequence[str] | None = None,
    plans: Sequence[str] = (),
    sizes: Collection[float] | None = None,
    num_images: int | None = None,
    whole: bool = False,
    force: bool = False,
    seed: int = 0,
    device: str | None = None,
    cfg_options: dict | None = None,
    say: Callable[[str], None] = print,
    runs_in: str = 'pytorch',
    threads: int | None = None,
) -> StitchTable:
    """Add smaller budgets to a trained model without changing it.

    Each budget is a chain of the backbone's residual branches, attention and MLPs: some
    run whole, some with a part of their heads or neurons, some not at all. Output
    projections of narrow branches, and affine maps in place of skipped ones, are fitted
    by least squares on unlabelled images. A chain may also run on smaller images, and
    the model resizes them. Widths and sizes are chosen by how much each alone changes
    the predictions; the best chains of several sizes are fitted, and the one whose
    predictions on other images diverge least is kept. Stitch 0 of the result equals the
    model bit for bit.

    The files in ``work_dir`` are ``elastic.py`` and ``elastic.pth``, the config and
    checkpoint for all tools; ``search.json``, the measured branches, from which an
    interrupted call goes on and later calls choose other budgets; and test results of
    all budgets: ``stitches.json``, ``pareto.png`` and ``predictions.png``.

    A config without ``test_evaluator`` needs no labels at all, and its model no head:
    budgets are compared by their ``agreement`` with the network, 1 minus the divergence
    of their predictions or maps from its own; see :class:`PredictionDistance`.

    Args:
        config: Config of a segmentation, depth, detection or classification model of
            mmseg, mmdet or mmpretrain.
        checkpoint: Its checkpoint.
        work_dir: Output folder.
        images: Folder of unlabelled images. Default: the training images.
        budgets: Budgets below the network, such as ``'50%,25%'`` of its FLOPs,
            ``'3G'``, ``'20M'`` or ``'10ms,20ms'`` on this device. Default: 75, 50, 33
            and 25 % of the network or, if neck and head cost more than that, of the
            branches.
        plans: Plans of the chains instead of budgets, such as ``'0:3/768 1:0/768'``:
            heads and neurons of every block that does not run whole, after ``'0.7x: '``
            for smaller images. Plans that only skip branches need no measurement.
        sizes: Factors of the height and width of images among which chains choose.
            Default: 1, 0.85, 0.7, 0.6 and 0.5, as far as the network runs at these;
            ``(1,)`` for chains at full size only.
        num_images: Number of images that maps are fitted on. Default: 200, or 500 for
            classifiers, whose images have one cls token and few patches. Choosing
            widths uses fewer: enough for ten tokens per channel of the widest output
            projection, and at least 24.
        whole: Whether ``elastic.pth`` includes the network. Otherwise it records the
            path and digest of the checkpoint, and loading checks both.
        force: Whether to go on if no plan saves a fifth of the FLOPs, as of detectors
            whose neck and heads cost far more than their backbone.
        seed: Seed of the choice of images.
        device: Device, such as ``'cpu'`` or ``'cuda'``. Default: the best available.
        cfg_options: Settings to override in the config.
        say: Called with one line of progress per step.
        runs_in: ``'runtime'`` if milliseconds, in budgets and results, are those of an
            exported bundle in ONNX Runtime on this machine's CPU, from an image to its
            prediction. Chains then choose between fp32 and int8, too. Default:
            ``'pytorch'``.
        threads: Threads of the runtime. Default: 1.

    Returns:
        Results of the network and all budgets, with latencies on the device in ms.

    Raises:
        ValueError: If the model, a budget or an image is unsuitable; the message names
            the value and the option.

    Examples:
        >>> results = make_elastic('segformer.py', 'segformer.pth', 'work_dirs/elastic')
        >>> model = load('work_dirs/elastic', stitch=3)
    """
    check(runs_in in RUNS_IN, '--for', runs_in, RUNS_IN)
    in_runtime = runs_in == RUNS_IN[1]
    if in_runtime:
        threads, device = check_runtime(threads, device)
    known = threads is None or in_runtime
    check(known, '--threads', threads, 'none without --for runtime')
    check_named(cfg := load_config(config, cfg_options))
    folder = check_writable(work_dir, 'argument: work_dir')
    with guard_checkpoints(), work_dir_lock(folder), quiet_coco():
        path, loaded = folder / 'elastic.pth', load_weights_only(checkpoint)
        other = not path.exists() or not path.samefile(checkpoint)
        check(other, 'argument: work_dir', folder, f'a folder without {checkpoint}')
        network = init_model(cfg, checkpoint, device=device, loaded=loaded)
        if labelled := cfg.get('test_evaluator') is not None:
            try_test(cfg, network)
        model = elastic_model(network)
        batches = ImageBatches(cfg, model, images, seed)
        sample = next(iter(batches.draw(1)))
        check_equal(network, model, sample)
        base = BaseCheckpoint(checkpoint, weights_of(loaded), renames_of(network))
        settings = digest_of_settings(cfg)
        identity = dict(network=base.digest, settings=settings, seed=seed)
        graphs = GraphTimes(cfg, network, threads, say) if in_runtime else None
        job = Job(model, batches, sample, identity, folder, say, graphs)
        kind, number = type(network.backbone).__name__, len(job.view.skippable)
        say(f'{kind} with {number} branches: features are equal bit for bit')
        with explaining_out_of_memory(model, MAX_BATCH):
            candidates = job.choose(budgets, plans, sizes, num_images, force)
            chains = job.fit(candidates, num_images)
            made = elastic_config(cfg, network, chains, job.size)
            with atomic_path(folder / 'elastic.py') as temporary:
                write_config(made, temporary)
            meta = dict(dataset_meta=network.dataset_meta)
            base.save_added(path, model.state_dict(), meta, whole)
            return job.evaluate() if labelled else job.compare(num_images)
