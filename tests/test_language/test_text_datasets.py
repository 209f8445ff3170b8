"""Token ids of files and of instructions; what is a target, and what is refused."""

import json

import pytest
from mmengine.registry import DATASETS

pytest.importorskip('transformers')

ROWS = [
    dict(instruction='Add.', input='1 2', output='3'),
    dict(instruction='Say hi.', input='', output='hi'),
    dict(instruction='Stop.', output='no'),
]
TASK = 'Below is an instruction that describes a task'
INPUT = ', paired with an input that provides further context'
WRITE = '. Write a response that appropriately completes the request.\n\n'
PROMPTS = [
    f'{TASK}{INPUT}{WRITE}### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:',
    f'{TASK}{WRITE}### Instruction:\nSay hi.\n\n### Response:',
    f'{TASK}{WRITE}### Instruction:\nStop.\n\n### Response:',
]


def ids_of(dataset):
    return [sample['inputs'][0].tolist() for sample in dataset]


@pytest.fixture
def texts(tmp_path):
    """The config of 20 files, of which two are for validation."""
    for i in range(20):
        (tmp_path / f'{i:02}.txt').write_text('é' + f'{i:02}' * (3 + i))
    return dict(type='TextFiles', data_root=str(tmp_path), pattern='*.txt', length=16)


def test_text_files_are_cut_into_pieces(texts, tmp_path):
    files, validation = sorted(tmp_path.glob('*.txt')), [9, 19]
    for split in ('train', 'val'):
        val = split == 'val'
        names = [p for i, p in enumerate(files) if (i in validation) == val]
        wanted = []
        for name in names:
            ids = [*name.read_bytes(), 256]
            pieces = [ids[i : i + 16] for i in range(0, len(ids), 16)]
            wanted += [piece for piece in pieces if len(piece) > 1]
        dataset = DATASETS.build(dict(texts, split=split))
        assert ids_of(dataset) == wanted
        assert dataset[0]['data_samples'].labels.tolist() == wanted[:1]
    some = ids_of(DATASETS.build(dict(texts, split='val', num_pieces=3)))
    assert some == [wanted[i * len(wanted) // 3] for i in range(3)]


def test_alpaca_dataset_prompts_and_targets(tmp_path):
    """Instructions are prompts, and outputs are targets."""
    file = tmp_path / 'alpaca.json'
    file.write_text(json.dumps(ROWS))
    config = dict(type='AlpacaDataset', ann_file=str(file))
    dataset = DATASETS.build(config)
    for sample, prompt, row in zip(dataset, PROMPTS, ROWS, strict=True):
        ids = sample['inputs'][0].tolist()
        assert bytes(ids[:-1]).decode() == prompt + row['output']
        labels = sample['data_samples'].labels[0].tolist()
        assert labels == [-100] * len(prompt) + ids[len(prompt) :]
        assert ids[-1] == 256
    assert ids_of(DATASETS.build(dict(config, rows=(1, None)))) == ids_of(dataset)[1:]
    for text in ('', '{}', '[1]', '[{"instruction": "a"}]', '[{"output": 1}]'):
        file.write_text(text)
        with pytest.raises(ValueError, match='alpaca.json.*dataset.ann_file'):
            DATASETS.build(config)
