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

from snnet_mm.utils import check, is_whole, refusal, register

from .causal_lm import IGNORED

SPLITS = 'train', 'val'
# Alpaca's prompt (tatsu-lab/stanford_alpaca).
PROMPT = (
    'Below is an instruction that describes a task{paired}. Write a response that '
    'appropriately completes the request.\n\n'
    '### Instruction:\n{instruction}\n\n{input}### Response:'
)
PAIRED = ', paired with an input that provides further context'


class ByteTokenizer:
    """UTF-8 bytes as tokens 0 to 255; token 256 ends a text."""

    eos_token_id = 256

    def encode(self, text: str, **_) -> list[int]:
        """Return the bytes of a text; there are no special tokens to add."""
        return list(text.encode())


class TextDataset(BaseDataset):
    """Base class of data sets of token ids ``(1, L)`` and labels of the same shape.

    Args:
        tokenizer: ``'bytes'``, or a folder or name of a tokenizer of transformers.
    """

    def __init__(self, tokenizer: str = 'bytes', **kwargs) -> None:
        load = AutoTokenizer.from_pretrained
        self.tokenizer = ByteTokenizer() if tokenizer == 'bytes' else load(tokenizer)
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


@register(DATASETS)
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
        self.pattern, self.length = pattern, length
        self.split, self.num_pieces = split, num_pieces
        super().__init__(data_root=data_root or sysconfig.get_path('stdlib'), **kwargs)

    def load_data_list(self) -> list[dict]:
        pieces = super().load_data_list()
        number = min(self.num_pieces or len(pieces), len(pieces))
        return [pieces[i * len(pieces) // number] for i in range(number)]

    def texts(self) -> Iterator[tuple[str, list[int], int]]:
        files = sorted(Path(self.data_root).glob(self.pattern))
        wanted = 'a folder with 10 files of the pattern, or more'
        check(len(files) >= 10, 'dataset.data_root, dataset.pattern', files, wanted)
        for n, file in enumerate(files):
            if (n % 10 == 9) != (self.split == 'val'):
                continue
            text = file.read_text(encoding='utf-8', errors='replace')
            ids = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]
            for begin in range(0, len(ids) - 1, self.length):
                yield f'{file}:{begin}', ids[begin : begin + self.length], 0


@register(DATASETS)
class AlpacaDataset(TextDataset):
    """Instructions in Alpaca's format: a JSON list of instruction, input and output.

    Only the output, and the end token after it, are targets.

    Args:
        ann_file: The JSON file, relative to ``data_root``.
        rows: First row of this split, and the row after its last. Default: all rows.
    """

    def __init__(
        self, ann_file: str, rows: Sequence[int | None] = (None, None), **kwargs
    ) -> None:
        self.rows = slice(*rows)
        super().__init__(ann_file=ann_file, **kwargs)

    def texts(self) -> Iterator[tuple[str, list[int], int]]:
        key = 'dataset.ann_file'
        wanted = 'a json list of objects with instruction and output'
        try:
            rows = json.loads(Path(self.ann_file).read_text(encoding='utf-8'))
            pairs = [(_prompt(**row), row['output'] + '') for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise refusal(key, self.ann_file, f'{wanted}: {error}') from error
        check(pairs, key, self.ann_file, wanted)
        encode, end = self.tokenizer.encode, self.tokenizer.eos_token_id
        for n, (prompt, output) in list(enumerate(pairs))[self.rows]:
            asked, answer = encode(prompt), encode(output, add_special_tokens=False)
            yield f'{self.ann_file}:{n}', [*asked, *answer, end], len(asked)


def _prompt(instruction: str, input: str = '', **_) -> str:
    more = dict(paired='', input='')
    if input:
        more = dict(paired=PAIRED, input=f'### Input:\n{input}\n\n')
    return PROMPT.format(instruction=instruction, **more)
