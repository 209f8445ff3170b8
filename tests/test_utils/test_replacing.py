import numpy as np
import pytest

from snnet_mm.utils.replacing import replaced, with_globals

LIMIT = 1


class Base:
    def limit(self, *, factor=2):
        return LIMIT * factor


class Derived(Base):
    def limit(self, *, factor=3):
        return LIMIT + super().limit(factor=factor)


def test_replaced_restores_also_after_an_error():
    part = Base()
    values = dict(limit=lambda: 7, new=1)
    with replaced(vars(part), values):
        assert (part.limit(), part.new) == (7, 1)
    with pytest.raises(AttributeError), replaced(vars(part), values):
        part.missing()
    assert vars(part) == {}
    assert part.limit() == 2
    settings = dict(threshold=0.5, number=3)
    with replaced(settings, dict(threshold=-1)):
        assert settings == dict(threshold=-1, number=3)
    assert settings == dict(threshold=0.5, number=3)


def test_with_globals_changes_one_method_of_one_object():
    """Defaults and ``super()`` stay; the module and other objects do not change."""
    one, other = Derived(), Derived()
    one.limit = with_globals(one, 'limit', dict(LIMIT=np.float32(10)))
    assert one.limit() == 10 + 3
    assert one.limit(factor=1) == 10 + 1
    assert (other.limit(), LIMIT) == (1 + 3, 1)
