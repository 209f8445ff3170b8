"""Token ids of files and of instructions; what is a target, and what is refused."""

import json

import pytest
from mmengine.registry import DATASETS

from snnet_mm.integrations.transformers import build_tokenizer

BYTES = build_tokenizer('bytes')


def write_files(folder, number=20):
    for i in range(number):
        (folder / f'{i:02}.txt').write_text('é' + f'{i:02}' * (3 + i))
    return dict(type='TextFiles', data_root=str(folder), pattern='*.txt', length=16)


def test_bytes_are_tokens():
    assert BYTES.encode('aé') == [97, 195, 169]
    assert BYTES.decode([97, 195, 169, 256]) == 'aé'
    assert BYTES.decode([195]) == '\N{REPLACEMENT CHARACTER}'


def test_pieces_of_files(tmp_path):
    config, found = write_files(tmp_path), {}
    for split in ('train', 'val'):
        dataset = DATASETS.build(dict(config, split=split))
        for i in range(len(dataset)):
            name = dataset.get_data_info(i)['img_path'].split(':')[0]
            sample = dataset[i]
            ids = sample['inputs'][0].tolist()
            assert 2 <= len(ids) <= 16
            assert sample['data_samples'].labels.tolist() == [ids]
            found.setdefault((split, name), []).extend(ids)
    assert sum(split == 'val' for split, _ in found) == 2
    assert len(found) == 20
    for (_, name), ids in found.items():
        with open(name, encoding='utf-8') as file:
            text = [*BYTES.encode(file.read()), 256]
        # An end that would stand alone is no piece.
        assert ids == text[: len(ids)]
        assert len(text) - len(ids) in (0, 1)


def test_some_pieces_evenly_spread(tmp_path):
    config = write_files(tmp_path)
    of_all = [x['inputs'].tolist() for x in DATASETS.build(config)]
    some = DATASETS.build(dict(config, num_pieces=4))
    wanted = [of_all[int(i * len(of_all) / 4)] for i in range(4)]
    assert [x['inputs'].tolist() for x in some] == wanted
    assert len(DATASETS.build(dict(config, num_pieces=10**6))) == len(of_all)


ROWS = [
    dict(instruction='Add.', input='1 2', output='3'),
    dict(instruction='Say hi.', input='', output='hi'),
    dict(instruction='Stop.', output='no'),
]


def test_instructions_are_prompts_and_outputs_targets(tmp_path):
    file = tmp_path / 'alpaca.json'
    file.write_text(json.dumps(ROWS))
    config = dict(type='AlpacaDataset', ann_file=str(file))
    wanted = [
        '### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n',
        '### Instruction:\nSay hi.\n\n### Response:\n',
        '### Instruction:\nStop.\n\n### Response:\n',
    ]
    dataset = DATASETS.build(config)
    for sample, prompt, row in zip(dataset, wanted, ROWS, strict=True):
        ids = sample['inputs'][0].tolist()
        labels = sample['data_samples'].labels[0].tolist()
        assert BYTES.decode(ids) == prompt + row['output']
        assert ids[-1] == 256
        assert labels == [-100] * len(prompt) + ids[len(prompt) :]
    held_out = DATASETS.build(dict(config, rows=(1, None)))
    assert [x['inputs'].tolist() for x in held_out] == [
        x['inputs'].tolist() for x in list(dataset)[1:]
    ]
    own = dict(prompt='{instruction}{input}>', input_part=' {input}')
    first = DATASETS.build(config | own)[0]['inputs'][0].tolist()
    assert BYTES.decode(first) == 'Add. 1 2>3'


@pytest.mark.parametrize(
    'change, said',
    [
        (dict(split='test'), "split='test'; allowed: 'train', 'val'"),
        (dict(length=1), 'length=1; allowed: 2 tokens'),
        (dict(num_pieces=0), 'num_pieces=0; allowed: 1 or more'),
        (dict(pattern='*.md'), 'a folder with 10 files'),
    ],
)
def test_wrong_settings_of_files_are_refused(tmp_path, change, said):
    with pytest.raises(ValueError, match=said):
        DATASETS.build(write_files(tmp_path) | change)


@pytest.mark.parametrize(
    'text', ['', '{}', '[1]', '[{"instruction": "a"}]', '[{"output": "a"}]']
)
def test_other_files_than_alpacas_are_refused(tmp_path, text):
    file = tmp_path / 'alpaca.json'
    file.write_text(text)
    wanted = 'allowed: a json list of objects with instruction and output'
    with pytest.raises(ValueError, match=wanted):
        DATASETS.build(dict(type='AlpacaDataset', ann_file=str(file)))
