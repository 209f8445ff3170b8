"""Download pretrained weights: ``tools/get_weights.py NAME`` or ``--list``.

``configs/weights.yml`` lists the files. They are written to ``checkpoints/`` under the
names that configs read. ``timm://NAME`` is fetched to timm's cache. A config stands for
all weights that its training starts from, teachers included, so that it can be trained
without a network afterwards.
"""

import argparse
import urllib.request
from collections.abc import Iterator
from fnmatch import fnmatch
from http.client import HTTPException
from pathlib import Path

import yaml

from snnet_mm.runtime.bundle import file_digest
from snnet_mm.utils import ToolParser, atomic_path, run_command

LIST = Path(__file__).resolve().parents[1] / 'configs' / 'weights.yml'
TEACHER = 'regnety_160.deit_in1k'  # of DistillationWrapper


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    what = "files of the list, patterns such as 'deit_3_*', timm://NAME, or configs"
    parser.add_argument('names', nargs='*', metavar='NAME', help=what)
    parser.add_argument('--list', action='store_true', help='print the list')
    what = 'folder to write to (default: checkpoints)'
    parser.add_argument('--out', type=Path, default='checkpoints', help=what)
    return parser.parse_args()


def names_in(config: str) -> list[str]:
    """Return the weights that a config starts from: names of files, timm:// names."""
    from snnet_mm.utils import dicts_in, load_config
    from snnet_mm.utils.timm_models import origin_of

    found = []
    for part in dicts_in(load_config(config).model):
        found += [origin_of(part), part.get('teacher_checkpoint')]
        if part.get('type') == 'DistillationWrapper':
            teacher = part.get('teacher', dict(type='TimmTeacher')) or {}
            if teacher.get('type') == 'TimmTeacher' and teacher.get('pretrained', True):
                found.append(f'timm://{teacher.get("name", TEACHER)}')
    names = [n if '://' in n else Path(n).name for n in found if n]
    return list(dict.fromkeys(names))


def checked(path: Path, sha256: str | None) -> str:
    """Return a note on the checksum of a file; raise if it does not match."""
    if sha256 is None:
        return 'checksum unknown'
    found = file_digest(path)
    if not found.startswith(sha256):
        raise ValueError(f'SHA-256 of {path} is {found}; expected {sha256}...')
    return 'checksum verified'


def parts_of(url: str, path: Path) -> Iterator[bytes]:
    """Yield the parts of a file on the network, which is to be saved as ``path``.

    Raises:
        ValueError: If the file cannot be downloaded, or bytes are missing.
    """
    try:
        with urllib.request.urlopen(url) as response:
            left = int(response.headers.get('Content-Length', 0))
            while part := response.read(2**20):
                left -= len(part)
                yield part
        if left > 0:
            raise ConnectionError(f'{left} bytes are missing')
    except (OSError, HTTPException) as error:
        raise ValueError(
            f'{url} cannot be downloaded: {error}. To work offline, download it '
            f'elsewhere and save it as {path}'
        ) from error


def download(url: str, path: Path, sha256: str | None) -> str:
    """Download a file atomically and return a note on its checksum."""
    with atomic_path(path) as temporary:
        with temporary.open('wb') as file:
            for part in parts_of(url, path):
                file.write(part)
        return checked(temporary, sha256)


def main() -> None:
    args = parse_args()
    files = yaml.safe_load(LIST.read_text())
    if args.list or not args.names:
        for name, entry in files.items():
            known = entry.get('sha256')
            note = f'SHA-256 {known}...' if known else 'checksum unknown'
            print(f'{name}  ({entry["what"]}; {note})\n    {entry["url"]}')
        return
    patterns = []
    for name in args.names:
        patterns += names_in(name) if name.endswith('.py') else [name]
    timm = [p for p in patterns if p.startswith('timm://')]
    chosen = {p: [n for n in files if fnmatch(n, p)] for p in patterns if p not in timm}
    for pattern, names in chosen.items():
        if not names:
            raise ValueError(f'{pattern!r} matches no file of {LIST}: see --list')
    for name in timm:
        from snnet_mm.utils.timm_models import create_timm_model

        create_timm_model(name.removeprefix('timm://'), pretrained=True)
        print(f"{name} is in timm's cache (environment: HF_HOME, TORCH_HOME)")
    for name in dict.fromkeys(n for names in chosen.values() for n in names):
        path, url = args.out / name, files[name]['url']
        sha256 = files[name].get('sha256')
        if path.exists():
            print(f'{path} exists: {checked(path, sha256)}')
            continue
        print(f'{path} from {url}: {download(url, path, sha256)}')


if __name__ == '__main__':
    run_command(main)
