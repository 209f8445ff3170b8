"""Parts that subclass a class of another mm package; configs import what they need."""
