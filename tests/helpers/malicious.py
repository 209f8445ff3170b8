"""Objects that run code when they are unpickled."""


class Malicious:
    """Calls any function when unpickled, as in ``Malicious(Path.touch, path)``."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call
