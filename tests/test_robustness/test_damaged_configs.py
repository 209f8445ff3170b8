"""A damaged config is refused in one sentence, before anything is written."""

import pytest
from tiny import tiny_config


@pytest.mark.parametrize('tool', ['train.py', 'analysis_tools/stitch_table.py'])
@pytest.mark.parametrize('kept', [0.2, 0.9])
def test_half_a_config(tool, kept, tmp_path, run_tool):
    path, out = tmp_path / 'config.json', tmp_path / 'out'
    tiny_config().dump(path)
    text = path.read_text()
    path.write_text(text[: int(kept * len(text))])
    option = '--work-dir' if tool == 'train.py' else '--out'
    with pytest.raises(ValueError, match=f'config {path} cannot be read: JSON') as e:
        run_tool(tool, path, option, out)
    assert '\n' not in str(e.value)
    assert not [*out.rglob('*')]
