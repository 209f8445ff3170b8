"""Texts as token ids: files of a folder, and instructions in Alpaca's format."""

import json
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS
from mmengine.structures import BaseDataElement
from transformers import AutoTokenizer

from snnet_mm.utils import check, is_whole, refusal

from .causal_lm import IGNORED

# Alpaca's prompt (tatsu-lab/stanford_alpaca).
PROMPT = (
    'Below is an instruction that describes a task{paired}. Write a response that '
    'appropriately completes the request.\n\n'
    '### Instruction:\n{instruction}\n\n{input}### Response:'
)


class ByteTokenizer:
    """UTF-8 bytes as tokens 0 to 255; token 256 ends a text."""

    eos_token_id = 256

    def encode(self, text: str, **_) -> list[int]:
        """Return the bytes of a text; there are no special tokens to add."""
        return list(text.encode())


class TextDataset(BaseDataset):
    """Base class of data sets of token ids ``(1, L)`` and labels of the same shape.

    Items of :meth:`load_data_list` have the ``ids`` of a text, and the length of its
    ``prompt``, which is not a target.

    Args:
        tokenizer: ``'bytes'``, or a folder or name of a tokenizer of transformers.
    """

    def __init__(self, tokenizer: str = 'bytes', **kwargs) -> None:
        load = AutoTokenizer.from_pretrained
        self.tokenizer = ByteTokenizer() if tokenizer == 'bytes' else load(tokenizer)
        super().__init__(**kwargs)

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
        split: ``'val'`` for every tenth file by name, ``'train'`` for the others.
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
        check(split in ('train', 'val'), 'dataset.split', split, ('train', 'val'))
        check(is_whole(length, 2), 'dataset.length', length, '2 tokens or more')
        self.pattern, self.length = pattern, length
        self.split, self.num_pieces = split, num_pieces
        super().__init__(data_root=data_root or sysconfig.get_path('stdlib'), **kwargs)

    def load_data_list(self) -> list[dict]:
        files, pieces = sorted(Path(self.data_root).glob(self.pattern)), []
        expected = 'a folder with at least 10 files that match the pattern'
        check(len(files) >= 10, 'dataset.data_root, dataset.pattern', files, expected)
        for n, file in enumerate(files):
            if (n % 10 == 9) != (self.split == 'val'):
                continue
            text = file.read_text(encoding='utf-8', errors='replace')
            ids = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]
            for begin in range(0, len(ids) - 1, self.length):
                piece = ids[begin : begin + self.length]
                pieces.append(dict(img_path=f'{file}:{begin}', ids=piece, prompt=0))
        number = min(self.num_pieces or len(pieces), len(pieces))
        return [pieces[i * len(pieces) // number] for i in range(number)]


@DATASETS.register_module()
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

    def load_data_list(self) -> list[dict]:
        key = 'dataset.ann_file'
        expected = 'a JSON list of objects with instruction and output'
        try:
            rows = json.loads(Path(self.ann_file).read_text(encoding='utf-8'))
            pairs = [(_prompt(**row), row['output'] + '') for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise refusal(key, self.ann_file, f'{expected}: {error}') from error
        check(pairs, key, self.ann_file, expected)
        encode, end = self.tokenizer.encode, self.tokenizer.eos_token_id
        texts = []
        for n, (prompt, output) in list(enumerate(pairs))[self.rows]:
            asked, answer = encode(prompt), encode(output, add_special_tokens=False)
            text = dict(ids=[*asked, *answer, end], prompt=len(asked))
            texts.append(text | dict(img_path=f'{self.ann_file}:{n}'))
        return texts


def _prompt(instruction: str, input: str = '', **_) -> str:
    paired = ', paired with an input that provides further context' if input else ''
    input = f'### Input:\n{input}\n\n' if input else ''
    return PROMPT.format(instruction=instruction, paired=paired, input=input)
