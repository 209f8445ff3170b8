import math

import pytest

from snnet_mm.utils import check, is_number, is_whole, refusal


def test_what_is_right_passes():
    assert check(3, 'sampler.step', 3, 'a number above 0') is None


@pytest.mark.parametrize(
    ('key', 'value', 'allowed', 'message'),
    [
        (
            'sampler.step',
            -1,
            'a number above 0',
            'step=-1; allowed: a number above 0 (config key: sampler.step)',
        ),
        (
            'backbone.kinds',
            'FSS',
            ('FS', 'SF'),
            "kinds='FSS'; allowed: 'FS', 'SF'; did you mean 'FS'? "
            '(config key: backbone.kinds)',
        ),
        ('--keep', 7, (1, 2), 'keep=7; allowed: 1, 2 (option: --keep)'),
        ('a', 'b', (), "a='b'; allowed: nothing (config key: a)"),
    ],
)
def test_messages(key, value, allowed, message):
    assert str(refusal(key, value, allowed)) == message
    with pytest.raises(ValueError) as error:
        check(0, key, value, allowed)
    assert str(error.value) == message


def test_numbers():
    assert [is_whole(v) for v in (0, -2, True, 1.0, '1')] == [True, True] + 3 * [False]
    assert [is_whole(v, 1) for v in (0, 1)] == [False, True]
    assert [is_number(v) for v in (0.5, 2, math.nan, math.inf, False, '1')] == [
        *(True, True),
        *(4 * [False]),
    ]
