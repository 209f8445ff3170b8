import math

import pytest

from snnet_mm.utils import check, is_number, is_whole


@pytest.mark.parametrize(
    ('key', 'value', 'expected', 'message'),
    [
        (
            'a.b',
            -1,
            '1 or more',
            'b=-1 is invalid: expected 1 or more (config key: a.b)',
        ),
        (
            *('--kinds', 'FSS', ('FS', 'SF')),
            "kinds='FSS' is invalid: expected one of 'FS', 'SF'; "
            "did you mean 'FS'? (option: --kinds)",
        ),
        ('a', 'b', (), "a='b' is invalid: expected no value (config key: a)"),
        (
            *('argument: plans[0]', 'b', 'a plan'),
            "plans[0]='b' is invalid: expected a plan (argument: plans[0])",
        ),
    ],
)
def test_check_message(key, value, expected, message):
    check(1, key, value, expected)
    with pytest.raises(ValueError) as error:
        check(0, key, value, expected)
    assert str(error.value) == message


def test_is_whole_and_is_number():
    assert [is_whole(v) for v in (0, -2, True, 1.0, '1')] == [True, True] + 3 * [False]
    assert [is_whole(v, 1) for v in (0, 1)] == [False, True]
    numbers = [is_number(v) for v in (0.5, 2, math.nan, 10**400, False, '1')]
    assert numbers == [True, True] + 4 * [False]
