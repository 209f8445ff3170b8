"""Pictures of an elastic network, and what to do with it next."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import torch
from mmengine.runner import Runner
from torch import nn

from snnet_mm.evaluation import as_picture, plot_images
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.tasks import task_of
from snnet_mm.utils import tool_command

NUM_PICTURES = 4


@torch.no_grad()
def draw_predictions(runner: Runner, titles: Mapping[int, str], path: Path) -> None:
    """Draw test images, their ground truth and the predictions of some stitches.

    Args:
        runner: A runner with a test set and a visualizer.
        titles: Column headings by stitch id.
        path: Picture to write.
    """
    model, visualizer = runner.model, runner.visualizer
    dataset, task, rows = runner.test_dataloader.dataset, task_of(visualizer), []
    number = min(NUM_PICTURES, len(dataset))
    for i in (n * len(dataset) // number for n in range(number)):
        item, row = dataset[i], []
        image = as_picture(item['inputs'].numpy().transpose(1, 2, 0))[..., ::-1].copy()
        for stitch in titles:
            set_stitch(model, stitch)
            samples = [item['data_samples'].clone()]
            batch = dict(inputs=[item['inputs']], data_samples=samples)
            (sample,) = model.test_step(batch)
            height, width = sample.get('ori_shape', image.shape[:2])
            shown = cv2.resize(image, (width, height))
            # Class names would cover small images.
            plain = dict(with_labels=False) if 'pred_sem_seg' in sample else {}
            with TemporaryDirectory() as folder:
                file = str(Path(folder, 'a.png'))
                task.draw(visualizer, 'a', shown, sample, out_file=file, **plain)
                drawn = cv2.imread(file, cv2.IMREAD_COLOR_RGB)
            both = drawn.shape[1] >= 1.9 * shown.shape[1]  # truth beside prediction
            half = drawn.shape[1] // 2
            row += [drawn[:, :half]] if both and not row else []
            row.append(drawn[:, half:] if both else drawn)
        rows.append([shown, *row])
    names = ['image', 'truth'][: len(rows[0]) - len(titles)]
    meta = dataset.metainfo if 'pred_sem_seg' in sample else {}
    classes = zip(meta.get('classes', ()), meta.get('palette') or (), strict=False)
    plot_images(rows, [*names, *titles.values()], path, legend=dict(classes))


def next_commands(
    folder: Path, budget: str, model: nn.Module, verify: bool
) -> list[str]:
    """Return the commands of the next steps that an elastic model supports.

    Args:
        folder: Folder of the elastic model.
        budget: Budget to test it with.
        model: The model.
        verify: Whether the validation images can measure exported files.
    """
    files, bundle = (folder / 'elastic.py', folder / 'elastic.pth'), folder / 'bundle'
    known = '--results', folder / 'stitches.json'
    export = [*files, '--stitch-id', 'pareto', *known]
    task = task_of(model)
    in_graph = task.without_heads(model) is None
    if not in_graph:
        export += ['--format', 'mm']
    elif has_linear_layers(model):
        export += ['--precision', 'fp32', 'int8']
    if verify:
        export += ['--verify-on', 'val']
    commands = [
        tool_command('test.py', *files, '--budget', budget, *known),
        tool_command('export_stitch.py', *export, '--out', bundle),
    ]
    if in_graph and task.name == 'segmentation':  # which the page can show
        site = '--out', folder / 'site'
        commands.append(tool_command('web_demo.py', bundle, *site))
    return commands


def has_linear_layers(model: nn.Module) -> bool:
    """Return whether a network has layers that exports in int8 quantise."""
    (anchor,) = find_stitched_backbone(model).anchors
    return any(isinstance(module, nn.Linear) for module in anchor.modules())
