import pytest

from snnet_mm.stitching import read_plan, write_plan

# Two transformer blocks, a layer between stages, and a block of one piece.
WIDTHS, BLOCKS = (6, 64, 6, 64, 1, 1), (0, 0, 1, 1, None, 2)


@pytest.mark.parametrize(
    'text, plan, scale, whole_text',
    [
        ('0:3/32 1:0/64 2:0', (3, 32, 0, 64, 1, 0), 1, '0:3/32 1:0/64 2:0'),
        # Blocks that are omitted run whole.
        (' 1:6/0\n', (6, 64, 6, 0, 1, 1), 1, '0:6/64 1:6/0 2:1'),
        ('2:1 0:0/0', (0, 0, 6, 64, 1, 1), 1, '0:0/0 1:6/64 2:1'),
        ('0.70x: 1:6/0', (6, 64, 6, 0, 1, 1), 0.7, '0.7x: 0:6/64 1:6/0 2:1'),
        ('.5x', WIDTHS, 0.5, '0.5x: 0:6/64 1:6/64 2:1'),
    ],
)
def test_read_plan_and_write_plan_agree(text, plan, scale, whole_text):
    assert read_plan(text, WIDTHS, BLOCKS, 'chains[0]') == (plan, scale)
    assert write_plan(plan, BLOCKS, scale) == whole_text


@pytest.mark.parametrize(
    'text, words',
    [
        ('0:7/64', r"chains\[4\]='0:7/64' is .* 0:0 to 6/0 to 64 "),
        ('0:3', r"='0:3' is .* 0:0 to 6/0 to 64 "),
        ('3:0/0', "='3:0/0' is .* blocks 0 to 2"),
        ('0:0/0 0:6/0', "='0:6/0' is .* each once"),
        ('0:-1/3', "='0:-1/3' is invalid"),
        (' ', "=' ' is invalid"),
        ('1.2x: 0:3/8', "='1.2x: 0:3/8' is .* above 0x and up to 1x"),
        ('0x', "='0x' is .* above 0x and up to 1x"),
        ('0.5x 0:3/8', "='0.5x' is .* words such as '0:3/768'"),
        ([0, 1, 3], r'=\[0, 1, 3\] is .*tools/make_elastic.py'),
    ],
)
def test_read_plan_bad_words_raise(text, words):
    with pytest.raises(ValueError, match=words):
        read_plan(text, WIDTHS, BLOCKS, 'chains[4]')
