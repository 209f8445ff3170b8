"""Bundles on the Hugging Face hub, with a card made of the manifest."""

import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.bundle import check_whole, files_of
from snnet_mm.runtime.manifest import MANIFEST


class HubRuntime(StitchRuntime, ModelHubMixin, library_name='snnet_mm'):
    """A :class:`StitchRuntime` with ``from_pretrained`` and ``push_to_hub``.

    ``save_pretrained`` writes the bundle and its card into a folder.
    """

    def _save_pretrained(self, save_directory: Path) -> None:
        for file in files_of(self.manifest):
            path = check_whole(self.folder, file)
            shutil.copyfile(path, save_directory / path.name)
        shutil.copyfile(self.folder / MANIFEST, save_directory / MANIFEST)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **settings: Any) -> 'HubRuntime':
        about = 'revision', 'cache_dir', 'force_download', 'local_files_only', 'token'
        about = {key: settings.pop(key) for key in about}
        settings = {k: v for k, v in settings.items() if k not in HUB_ONLY}
        is_folder = Path(model_id).is_dir()
        folder = model_id if is_folder else snapshot_download(model_id, **about)
        return cls(folder, **settings)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Return the card: stitches, metrics, times and what licences hang on."""
        return ModelCard(card_of(self.manifest))


HUB_ONLY = 'proxies', 'resume_download', 'config'


def card_of(manifest: dict) -> str:
    """Return the text of a card; it says only what the manifest holds."""
    ranked, size = manifest['ranked_by'], manifest['input']['shape'][2:]
    metric = ranked['metric'] if ranked else 'metric'
    lines = ['---', 'library_name: snnet_mm', f'tags: [{manifest["task"]}]', '---', '']
    lines += [f'# Stitches for {manifest["task"]}, {size[0]}x{size[1]}', '']
    lines += [
        'One stitched network for several budgets, to be switched at run time:',
        '',
    ]
    lines += ['```python', 'from snnet_mm.exports.hub import HubRuntime', '']
    lines += ["runtime = HubRuntime.from_pretrained('OWNER/NAME')"]
    lines += ["runtime.set_budget('25ms')", 'prediction = runtime(image)', '```', '']
    heads = 'stitch', 'GFLOPs', 'precision', metric, 'lost, 95 %', 'ms'
    lines += [f'| {" | ".join(heads)} |', '|' + '---|' * len(heads)]
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
            row += [f'{found["ms"]:.1f}' if found else '']
            lines.append(f'| {" | ".join(row)} |')
    names = ', '.join(anchor['name'] for anchor in manifest['anchors'])
    lines += ['', f'Metrics: {manifest["compared_on"]}. Times and losses were measured']
    lines += ['at export, where they are given; times depend on the device.', '']
    lines += [f'Licences are those of the weights that the anchors ({names}) were made']
    lines += ['of, and of the data; the manifest does not hold them. State them here.']
    return '\n'.join(lines) + '\n'
