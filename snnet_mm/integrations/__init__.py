"""Parts for classes of other mm packages; the modules here import none of these."""

from . import detector_heads, rules
