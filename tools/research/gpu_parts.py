"""The parts of ``gpu_session.py``: functions that return cases by name.

Weights are random, images are drawn: neither files nor a network are needed.
"""

import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import torch
from gpu_session import OUT, Figures
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import HOOKS, init_default_scope
from mmengine.runner import Runner
from torch import nn

import snnet_mm as sn
from snnet_mm import register  # noqa: F401  # mmengine reads the configs
from snnet_mm.costs import measure_latency
from snnet_mm.models import compile_stitches, find_stitched_backbone
from snnet_mm.models.init_model import init_model
from snnet_mm.tasks import import_parts_for
from snnet_mm.training import run
from snnet_mm.utils import model_config

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / 'tests' / 'helpers'))
import narrowing  # noqa: E402
from config_models import RUNS, config_of  # noqa: E402
from labelled_folders import write  # noqa: E402
from small import small, write_trained  # noqa: E402

TOY = bool(os.environ.get('TOY'))
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'
Cases = dict[str, Callable[[], Figures]]

SETR = 'setr/setr-naive_snnetv2-deit3-s-l_8xb2-160k_ade20k-512x512'
DINOV2 = 'dinov2/setr-naive_dinov2-s_1xb4-600_camvid-238x168'
DEIT3 = 'imagenet/snnetv2-deit3-s-l_8xb32-50e_in1k-224x224'
# One of every task, optimizer and kind of anchors.
TRAINED = {
    'SETR, 512x512': SETR,
    'ViTDet, 1024x1024': 'vitdet/mask-rcnn_snnetv2-deit3-s-l_8xb1-100e_coco-1024x1024',
    'DPT, 416x544': 'dpt/dpt_snnetv2-deit3-s-l_4xb4-24e_nyu-416x544',
    'ImageNet, LAMB': DEIT3,
    'ESTA': 'esta/fgvc/adapt-then-esta-augreg-ti-s-b_1xb64-100e_cub-224x224',
    'bridge, batch norms': 'bridging/bridge-resnet50-resnet50_2xb256-10e_in1k-224x224',
    'SN-Netv1, DeiT': 'imagenet/snnetv1-deit-ti-s-b_8xb128-50e_in1k-224x224',
    'Swin, UPerNet': 'swin/upernet_snnetv1-swin-ti-s_8xb2-160k_ade20k-512x512',
}
# Nearly the full size of CamVid's images, as of the best network of configs/dinov2.
SIZE = 350, 476
DTYPES = dict(fp16=torch.float16, fp32=torch.float32)
BATCHES = 1, 16
PHOTO = narrowing.IMAGE if TOY else (375, 500)  # ImageNet's mean size
COMPILED = dict(backend='eager') if TOY else {}


def tests() -> Cases:
    """Run the tests marked ``gpu``."""
    return dict(tests=run_tests)


def run_tests() -> Figures:
    file = OUT.resolve() / 'tests.xml'
    files = (ROOT / 'tests').rglob('test_*.py')
    files = [path for path in files if 'mark.gpu' in path.read_text()]
    command = [sys.executable, '-m', 'pytest', '-q', '-m', 'gpu', f'--junitxml={file}']
    subprocess.run([*command, *files], cwd=ROOT, check=False)
    cases = [*ElementTree.parse(file).iter('testcase')]
    file.unlink()
    ends = {case.get('name'): {child.tag for child in case} for case in cases}
    failed = [name for name, tags in ends.items() if tags & {'failure', 'error'}]
    skipped = sum('skipped' in tags for tags in ends.values())
    passed = len(ends) - len(failed) - skipped
    return dict(passed=passed, skipped=skipped, failed=', '.join(failed))


def steps() -> Cases:
    """Train two steps: seconds of the second, peak memory of both."""
    cases: Cases = {name: partial(train, config) for name, config in TRAINED.items()}
    cases['SETR, AMP'] = partial(train, SETR, 'AmpOptimWrapper')
    cases['SETR, bf16'] = partial(train, SETR, 'BF16OptimWrapper')
    cases['resumed, against uninterrupted'] = resume
    return cases


@HOOKS.register_module()
class StepClock(Hook):
    """Keeps the seconds of every training step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def before_train_iter(self, *args, **kwargs) -> None:
        self.start = now()

    def after_train_iter(self, *args, **kwargs) -> None:
        self.seconds.append(now() - self.start)


def train(name: str, wrapper: str | None = None) -> Figures:
    cfg, hooks = read(name), dict(checkpoint=None)  # which has gigabytes
    cfg.optim_wrapper.type = wrapper or cfg.optim_wrapper.type
    cfg.train_cfg.max_iters, cfg.param_scheduler = 2, []
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.default_hooks.pop('stitch_statistics', None)
    if 'stitch_init' in cfg.default_hooks:
        hooks['stitch_init'] = dict(num_images=2)
    cfg.merge_from_dict(dict(default_hooks=hooks))
    cfg.custom_hooks = [*cfg.get('custom_hooks', ()), dict(type='StepClock')]
    runner = run.train(cfg, OUT / 'train')
    (clock,) = (hook for hook in runner.hooks if isinstance(hook, StepClock))
    batch = cfg.train_dataloader.batch_size
    return dict(batch=batch, step_s=clock.seconds[1], peak_gb=peak())


def resume() -> Figures:
    """Train four iterations, and again from the second: how far weights differ."""
    cfg = small('seg')
    cfg.train_cfg.max_iters = 4
    cfg.default_hooks.checkpoint.update(interval=2, max_keep_ckpts=-1)
    whole, resumed = OUT / 'whole', OUT / 'resumed'
    run.train(cfg, whole)
    shutil.rmtree(resumed, ignore_errors=True)
    resumed.mkdir()
    shutil.copy(whole / 'iter_2.pth', resumed)
    run.train(cfg, resumed, resume=True)
    a, b = (
        torch.load(folder / 'iter_4.pth', 'cpu', weights_only=False)['state_dict']
        for folder in (whole, resumed)
    )
    off = max((a[name].double() - b[name].double()).abs().max().item() for name in a)
    return dict(largest_difference=off)


def latency() -> Cases:
    """Time both anchors of DeiT3 S/L and every tenth stitch, SETR at 512x512."""
    model = cache(lambda: init_model(read(SETR), None, device=DEVICE))
    ids = [0, 130] if TOY else [0, 1, *range(10, 134, 10)]
    cases: Cases = {}
    for dtype, batch in product(DTYPES, BATCHES):
        cases[f'{dtype}, batch {batch}'] = partial(timed, model, dtype, batch, ids)
    for dtype, batch in product(DTYPES, BATCHES):
        compiled = cache(lambda *setup: compile_again(model()))
        for i in ids:
            of = partial(compiled, dtype, batch)
            name = f'compiled {dtype}, batch {batch}, stitch {i}'
            cases[name] = partial(timed, of, dtype, batch, [i])
    return cases


def compile_again(model: nn.Module) -> nn.Module:
    """Compile a model for one data type and size, not for any as at a second one."""
    torch._dynamo.reset()
    compile_stitches(model, **COMPILED)
    return model


def elastic() -> Cases:
    """Make DINOv2-S at 350x476 elastic, with SETR's head, and time its budgets."""
    folder = OUT / 'elastic'
    cases: Cases = dict(make_elastic=partial(make, folder))
    for compiled, dtype, batch in product((False, True), DTYPES, BATCHES):

        def load(compiled: bool = compiled) -> nn.Module:
            model = sn.load(folder, device=DEVICE)
            return compile_again(model) if compiled else model

        name = f'{"compiled " * compiled}{dtype}, batch {batch}'
        cases[name] = partial(timed, load, dtype, batch)
    return cases


def make(folder: Path) -> Figures:
    config, checkpoint = write_trained('seg', OUT) if TOY else write_dinov2()
    photos, lines = data() / 'photos', []
    with warnings.catch_warnings(record=True) as found:
        sn.make_elastic(
            config,
            checkpoint,
            folder,
            photos,
            whole=True,
            force=True,
            say=lines.append,
        )
    said = '; '.join(str(warning.message) for warning in found)
    return dict(peak_gb=peak(), lines=len(lines), warnings=said)


def write_dinov2() -> tuple[Path, Path]:
    """Write config and random weights of DINOv2-S."""
    cfg = read(DINOV2)
    cfg.model.data_preprocessor.size = cfg.model.backbone.img_size = SIZE
    cfg.train_dataloader.dataset.pipeline[2].scale = SIZE[::-1]
    cfg.train_dataloader.dataset.pipeline[3].crop_size = SIZE
    cfg.test_dataloader.dataset.pipeline[1].scale = SIZE[::-1]
    model = init_model(cfg, None, device='cpu')
    config, checkpoint = OUT / 'network.py', OUT / 'network.pth'
    cfg.dump(config)
    meta = dict(dataset_meta=model.dataset_meta)
    torch.save(dict(meta=meta, state_dict=model.state_dict()), checkpoint)
    return config, checkpoint


def loaders() -> Cases:
    """Count the images per second that training loaders yield, without a model."""
    numbers = [0] if TOY else sorted({4, 8, os.cpu_count() or 1})
    return {
        f'{name}, {number} workers': partial(load_images, config, number)
        for name, config in dict(ImageNet=DEIT3, ADE20K=SETR).items()
        for number in numbers
    }


def load_images(name: str, workers: int, seconds: float = 1 if TOY else 4) -> Figures:
    cfg = read(name)
    import_parts_for(cfg)
    init_default_scope(cfg.default_scope)
    loader = cfg.train_dataloader
    loader.update(num_workers=workers, persistent_workers=workers > 0)
    batches = iter(Runner.build_dataloader(loader, seed=0))
    for _ in range(2 * workers):  # prefetched ones
        next(batches)
    number, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        next(batches)
        number += loader.batch_size
    rate = number / (time.perf_counter() - start)
    return dict(batch=loader.batch_size, images_per_s=rate)


@cache
def data() -> Path:
    """Draw images in the layouts of all data sets, unless they are there."""
    root, photos = OUT / 'data', OUT / 'data' / 'photos'
    if not photos.exists():
        shutil.rmtree(root, ignore_errors=True)
        narrowing.write_data(root, PHOTO)
        for i in range(40):
            write(OUT / 'drawn' / f'{i}.jpg', PHOTO)
        (OUT / 'drawn').rename(photos)
    return root


def read(name: str) -> Config:
    """Return the config of a run, without weights, on drawn images.

    Classifiers have the two classes that are drawn.
    """
    cfg = config_of(RUNS[name])
    if TOY:
        return narrowing.narrow_own(cfg, data(), OUT / 'train')
    narrowing.give_teacher(cfg.model, data(), 'regnety_160')
    narrowing.without_weights(cfg.model)
    narrowing.read_from(cfg, data())
    return cfg


def timed(
    load: Callable[[], nn.Module], dtype: str, batch: int, ids: Iterable[int] = ()
) -> Figures:
    """Return end to end milliseconds of stitches, by default of all."""
    model = load().to(DTYPES[dtype])
    ids = ids or find_stitched_backbone(model).space.ids
    size = tuple(model_config(model.cfg).data_preprocessor.size)
    times = measure_latency(model, size, batch, 2 if TOY else 10, ids)
    return {f'{check.stitch_id}: ms': check.measured for check in times.checks}


def now() -> float:
    if DEVICE == 'cuda':
        torch.cuda.synchronize()
    return time.perf_counter()


def peak() -> float | None:
    return torch.cuda.max_memory_allocated() / 1e9 if DEVICE == 'cuda' else None


def reset_peak() -> None:
    if DEVICE == 'cuda':
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
