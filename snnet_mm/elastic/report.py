"""Pictures of an elastic network."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import torch
from mmengine.runner import Runner

from snnet_mm.evaluation import as_picture, plot_images
from snnet_mm.models import set_stitch
from snnet_mm.tasks import task_of

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
