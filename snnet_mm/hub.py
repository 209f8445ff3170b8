"""Bundles and stitched models on the Hugging Face hub, each with a model card."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi

from .runtime.bundle import check_whole, files_of
from .runtime.manifest import MANIFEST, read_manifest

CARD = """---
library_name: snnet_mm
tags: [{task}]
{licence}---

# One network for several budgets: {task}

`{opened}(huggingface_hub.snapshot_download('OWNER/NAME'))` opens it.

{stitches}

{anchors}

The licence of the training data may apply, too.
"""


def upload(folder: str | os.PathLike, repo_id: str, **settings: Any) -> str:
    """Upload a bundle, or a folder of :func:`snnet_mm.load`, with a model card.

    ``StitchRuntime`` or ``snnet_mm.load`` open what ``snapshot_download(repo_id)`` of
    huggingface_hub returns. Loading a model executes its config, which is Python code:
    load only models of authors you trust.

    Args:
        folder: The folder.
        repo_id: Repository ``'OWNER/NAME'``, created if it does not exist.
        **settings: Arguments of ``HfApi.upload_folder``, such as ``revision``.

    Returns:
        URL of the commit.

    Raises:
        ValueError: If a file of a bundle is missing or damaged.
    """
    api, folder = HfApi(), Path(folder)
    with TemporaryDirectory() as name:
        write = _link_bundle if (folder / MANIFEST).is_file() else _write_model
        card = write(folder, Path(name))
        Path(name, 'README.md').write_text(card, encoding='utf-8')
        api.create_repo(repo_id, exist_ok=True)
        return api.upload_folder(repo_id=repo_id, folder_path=name, **settings)


def _link_bundle(folder: Path, out: Path) -> str:
    """Link the files of a bundle into a folder; return the card."""
    manifest, rows = read_manifest(folder), []
    paths = {check_whole(folder, file) for file in files_of(manifest)}
    for path in (*paths, folder / MANIFEST):
        (out / path.name).symlink_to(path.resolve())
    for stitch in manifest['stitches']:
        for file in stitch['files']:
            about, found = dict(precision=file['precision']), file['verified'] or {}
            about |= stitch['metrics'] | {k: found.get(k) for k in ('lost', 'ms')}
            rows.append(_row(stitch, stitch['flops']) | about)
    opened = 'snnet_mm.runtime.StitchRuntime'
    return _card(manifest['task'], rows, manifest['anchors'], opened)


def _write_model(folder: Path, out: Path) -> str:
    """Write config, weights and results of a model to a folder; return the card."""
    import torch  # deferred, as bundles need none of these

    from .api import load, stitches
    from .exports.single import anchors_of
    from .tasks import task_of
    from .utils.checkpoints import load_weights_only

    model = load(folder, device='cpu')
    # Includes the weights of a base checkpoint, if the file only adds to one.
    torch.save(load_weights_only(model.loaded_from), out / 'elastic.pth')
    model.cfg.dump(out / 'elastic.py')
    results = Path(model.loaded_from).with_name('stitches.json')
    if results.exists():
        shutil.copyfile(results, out / results.name)
    rows = [_row(s, s['costs']['flops']) | s['scores'] for s in stitches(model)]
    anchors = anchors_of(model.cfg, model)
    return _card(task_of(model).name, rows, anchors, 'snnet_mm.load')


def _row(stitch: Mapping[str, Any], flops: float) -> dict[str, Any]:
    return dict(stitch=f'{stitch["id"]}: {stitch["route"]}', GFLOPs=flops / 1e9)


def _card(task: str, rows: list[dict], anchors: list[dict], opened: str) -> str:
    keys = 'name', 'weights', 'licence'
    weights = [{key: a.get(key) or 'unknown' for key in keys} for a in anchors]
    licences = {row['licence'] for row in weights}
    known = len(licences) == 1 and licences != {'unknown'}
    licence = f'license: {licences.pop()}\n' if known else ''
    tables = dict(stitches=_table(rows), anchors=_table(weights))
    return CARD.format(task=task, licence=licence, opened=opened, **tables)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table with a column for every key; missing cells are empty."""
    heads = [*dict.fromkeys(key for row in rows for key in row)]

    def cell(value: object) -> str:
        if value is None:
            return ''
        return f'{value:.2f}' if isinstance(value, float) else str(value)

    lines = [heads, ['---'] * len(heads)]
    lines += [[cell(row.get(head)) for head in heads] for row in rows]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)
