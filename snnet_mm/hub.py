"""Bundles and stitched models on the Hugging Face hub, each with a model card."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download

from .runtime import StitchRuntime
from .runtime.bundle import check_whole, files_of
from .runtime.manifest import MANIFEST

DOWNLOAD = 'revision', 'cache_dir', 'force_download', 'local_files_only', 'token'
HUB_ONLY = 'proxies', 'resume_download', 'config'  # the mixin's, unused here


class _FromFolder(ModelHubMixin):
    """Opens a local folder, or downloads one from the hub."""

    def __new__(cls, *args: Any, **kwargs: Any) -> '_FromFolder':
        self = super().__new__(cls, *args, **kwargs)
        # The mixin would publish the arguments, such as the folder's path.
        self._hub_mixin_config = None
        return self

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **settings: Any) -> '_FromFolder':
        about = {key: settings.pop(key) for key in DOWNLOAD}
        settings = {k: v for k, v in settings.items() if k not in HUB_ONLY}
        is_folder = Path(model_id).is_dir()
        folder = model_id if is_folder else snapshot_download(model_id, **about)
        return cls(folder, **settings)


class HubRuntime(StitchRuntime, _FromFolder, library_name='snnet_mm'):
    """A :class:`StitchRuntime` with ``from_pretrained`` and ``push_to_hub``.

    ``save_pretrained`` writes the bundle and its card into a folder.
    """

    def _save_pretrained(self, save_directory: Path) -> None:
        for file in files_of(self.manifest):
            path = check_whole(self.folder, file)
            shutil.copyfile(path, save_directory / path.name)
        shutil.copyfile(self.folder / MANIFEST, save_directory / MANIFEST)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Return the card: stitches, metrics, times, and licences of the anchors."""
        return ModelCard(card_of(self.manifest))


class HubModel(_FromFolder, library_name='snnet_mm'):
    """A stitched model with ``from_pretrained`` and ``push_to_hub``.

    ``save_pretrained`` writes a folder for :func:`snnet_mm.load`, and its card. Loading
    executes the config, which is Python code: load only folders of authors you trust.

    Args:
        folder_or_config: See :func:`snnet_mm.load`, also for the other arguments.

    Attributes:
        model: The mm model.
    """

    def __init__(self, folder_or_config: str, *args: Any, **settings: Any) -> None:
        from .api import load  # deferred, as bundles need no torch

        self.model = load(folder_or_config, *args, **settings)

    def _save_pretrained(self, save_directory: Path) -> None:
        import torch

        from .utils.checkpoints import load_weights_only

        source = Path(self.model.loaded_from)
        # Includes the weights of a base checkpoint, if the file only adds to one.
        torch.save(load_weights_only(source), save_directory / 'elastic.pth')
        self.model.cfg.dump(save_directory / 'elastic.py')
        results = source.with_name('stitches.json')
        if results.exists():
            shutil.copyfile(results, save_directory / results.name)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Return the card: costs and scores of stitches, and licences of anchors."""
        from .api import stitches
        from .exports.single import anchors_of
        from .tasks import task_of

        rows, names = [], []
        for row in (found := stitches(self.model)):
            names = [*dict.fromkeys([*names, *row['scores']])]
        for row in found:
            scores = [f'{row["scores"].get(name, float("nan")):.2f}' for name in names]
            flops = f'{row["costs"]["flops"] / 1e9:.2f}'
            rows.append([f'{row["id"]}: {row["route"]}', flops, *scores])
        code = ['import snnet_mm as sn', 'from snnet_mm.hub import HubModel', '']
        code += ["model = HubModel.from_pretrained('OWNER/NAME').model"]
        code += ["sn.set_budget(model, '50%')", "sn.predict(model, 'photo.jpg')"]
        heads, anchors = (
            ['stitch', 'GFLOPs', *names],
            anchors_of(self.model.cfg, self.model),
        )
        task = task_of(self.model).name
        return ModelCard(_card(task, task, code, heads, rows, [], anchors))


def card_of(manifest: Mapping[str, Any]) -> str:
    """Return the text of a bundle's card, built from the manifest alone."""
    ranked, size = manifest['ranked_by'], manifest['input']['shape'][2:]
    metric, rows = ranked['metric'] if ranked else 'metric', []
    for stitch in manifest['stitches']:
        score = stitch['metrics'].get(metric)
        for file in stitch['files']:
            found, row = file['verified'] or {}, [f'{stitch["id"]}: {stitch["route"]}']
            row += [f'{stitch["flops"] / 1e9:.2f}', file['precision']]
            row += ['' if score is None else f'{score:.2f}']
            low, high = found.get('interval') or (None, None)
            between = '' if low is None else f' [{low:.2f}, {high:.2f}]'
            lost = found.get('lost')
            row += ['' if lost is None else f'{lost:.2f}{between}']
            rows.append([*row, f'{found["ms"]:.1f}' if found else ''])
    code = ['from snnet_mm.hub import HubRuntime', '']
    code += ["runtime = HubRuntime.from_pretrained('OWNER/NAME')"]
    code += ["runtime.set_budget('25ms')", 'prediction = runtime(image)']
    heads = ['stitch', 'GFLOPs', 'precision', metric, 'lost, 95 %', 'ms']
    notes = [f'Files were compared on {manifest["compared_on"]}. Times and losses were']
    notes += ['measured at export; times depend on the device.', '']
    title, task = '{}, {}x{}'.format(manifest['task'], *size), manifest['task']
    return _card(task, title, code, heads, rows, notes, manifest['anchors'])


def _card(
    task: str,
    title: str,
    code: Sequence[str],
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    anchors: Sequence[Mapping[str, Any]],
) -> str:
    licences = {anchor.get('licence') for anchor in anchors}
    about = [f'license: {licences.pop()}'] if len(licences) == 1 else []
    about = [] if about == ['license: None'] else about
    lines = ['---', 'library_name: snnet_mm', f'tags: [{task}]', *about, '---', '']
    lines += [f'# Stitches for {title}', '']
    lines += ['One network for several budgets, which is switched at run time:', '']
    lines += ['```python', *code, '```', '', f'| {" | ".join(heads)} |']
    lines += ['|' + '---|' * len(heads), *(f'| {" | ".join(row)} |' for row in rows)]
    lines += ['', *notes, '| anchor | pretrained weights | licence |', '|---|---|---|']
    for anchor in anchors:
        cells = (anchor.get(key) or 'unknown' for key in ('weights', 'licence'))
        lines.append(f'| {anchor["name"]} | {" | ".join(cells)} |')
    lines += ['', 'The licence of the training data may apply, too.', '']
    return '\n'.join(lines)
