from narrowing import SIDE, write_data  # noqa: F401
from narrowing import narrow_own as narrow  # noqa: F401
