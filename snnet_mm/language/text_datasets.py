"""Texts as token ids: files of a folder, and instructions in Alpaca's format."""

import json
import sysconfig
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS
from mmengine.structures import BaseDataElement
from transformers import AutoTokenizer

from snnet_mm.utils import check, is_whole, refusal

from .causal_lm import IGNORED

SPLITS = 'train', 'val'
# Alpaca's prompt (tatsu-lab/stanford_alpaca).
PROMPT = (
    'Below is an instruction that describes a task{paired}. Write a response that '
    'appropriately completes the request.\n\n'
    '### Instruction:\n{instruction}\n\n{input}### Response:'
)
PAIRED = ', paired with an input that provides further context'
INPUT = '### Input:\n{input}\n\n'


class ByteTokenizer:
    """UTF-8 bytes as tokens 0 to 255; token 256 ends a text."""

    eos_token_id = 256

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Return the bytes of a text; there are no special tokens to add."""
        return list(text.encode())

    def decode(self, ids: Sequence[int], **_) -> str:
        """Return the text of bytes; a replacement character marks invalid UTF-8."""
        return bytes(i for i in ids if i < self.eos_token_id).decode(errors='replace')


def build_tokenizer(name: str):
    """Return a tokenizer of a transformers folder or name; ``'bytes'`` is built in."""
    return ByteTokenizer() if name == 'bytes' else AutoTokenizer.from_pretrained(name)


class TextDataset(BaseDataset):
    """Base class of data sets of token ids ``(1, L)`` and labels of the same shape.

    Args:
        tokenizer: See :func:`build_tokenizer`.
    """

    def __init__(self, tokenizer: str = 'bytes', **kwargs) -> None:
        self.tokenizer = build_tokenizer(tokenizer)
        super().__init__(**kwargs)

    @abstractmethod
    def texts(self) -> Iterator[tuple[str, list[int], int]]:
        """Yield each text's name, its ids, and the number of leading non-targets."""

    def load_data_list(self) -> list[dict]:
        texts = self.texts()
        return [dict(img_path=name, ids=ids, prompt=n) for name, ids, n in texts]

    def prepare_data(self, idx: int) -> dict:
        """Return token ids, and a data sample with labels, -100 for the prompt."""
        info = self.get_data_info(idx)
        ids = torch.tensor([info['ids']])
        labels = ids.clone()
        labels[:, : info['prompt']] = IGNORED
        return dict(inputs=ids, data_samples=BaseDataElement(labels=labels))


@DATASETS.register_module()
class TextFiles(TextDataset):
    """The text files of a folder, cut into pieces of equal length.

    Args:
        data_root: The folder. Default: Python's standard library.
        pattern: Glob pattern of the files; see ``Path.glob``.
        length: Tokens per piece; the last piece of a file may be shorter.
        split: ``'val'`` for every tenth file in order of name, ``'train'`` for the
            others.
        num_pieces: Number of pieces to keep, evenly spaced. Default: all.
    """

    def __init__(
        self,
        data_root: str | None = None,
        pattern: str = '*.py',
        length: int = 128,
        split: str = 'train',
        num_pieces: int | None = None,
        **kwargs,
    ) -> None:
        check(split in SPLITS, 'dataset.split', split, SPLITS)
        check(is_whole(length, 2), 'dataset.length', length, '2 tokens or more')
        right = num_pieces is None or is_whole(num_pieces, 1)
        check(right, 'dataset.num_pieces', num_pieces, '1 or more')
        self.pattern, self.length, self.split = pattern, length, split
        self.num_pieces = num_pieces
        super().__init__(data_root=data_root or sysconfig.get_path('stdlib'), **kwargs)

    def load_data_list(self) -> list[dict]:
        pieces = super().load_data_list()
        number = min(self.num_pieces or len(pieces), len(pieces))
        return [pieces[i * len(pieces) // number] for i in range(number)]

    def texts(self) -> Iterator[tuple[str, list[int], int]]:
        files = sorted(p for p in Path(self.data_root).glob(self.pattern))
        wanted = 'a folder with 10 files of the pattern, or more'
        check(len(files) >= 10, 'dataset.data_root, dataset.pattern', files, wanted)
        for n, file in enumerate(files):
            if (n % 10 == 9) != (self.split == 'val'):
                continue
            text = file.read_text(encoding='utf-8', errors='replace')
            ids = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]
            for begin in range(0, len(ids) - 1, self.length):
                yield f'{file}:{begin}', ids[begin : begin + self.length], 0


@DATASETS.register_module()
class AlpacaDataset(TextDataset):
    """Instructions in Alpaca's format: a JSON list of instruction, input and output.

    Only the output, and the end token after it, are targets.

    Args:
        ann_file: The JSON file, relative to ``data_root``.
        rows: First row of this split, and the row after its last. Default: all rows.
    """

    def __init__(
        self,
        ann_file: str,
        rows: Sequence[int | None] = (None, None),
        **kwargs,
    ) -> None:
        self.rows = slice(*rows)
        super().__init__(ann_file=ann_file, **kwargs)

    def texts(self) -> Iterator[tuple[str, list[int], int]]:
        encode, end = self.tokenizer.encode, self.tokenizer.eos_token_id
        for n, row in list(enumerate(_read_rows(self.ann_file)))[self.rows]:
            more = dict(paired='', input='')
            if row.get('input'):
                more = dict(paired=PAIRED, input=INPUT.format(**row))
            asked = encode(PROMPT.format(instruction=row['instruction'], **more))
            answer = encode(row['output'], add_special_tokens=False)
            yield f'{self.ann_file}:{n}', [*asked, *answer, end], len(asked)


def _read_rows(path: str) -> list[dict]:
    key = 'dataset.ann_file'
    wanted = 'a json list of objects with instruction and output'
    try:
        rows = json.loads(Path(path).read_text(encoding='utf-8'))
        texts = [row[name] + '' for row in rows for name in ('instruction', 'output')]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise refusal(key, path, f'{wanted}: {error}') from error
    check(texts, key, path, wanted)
    return rows
