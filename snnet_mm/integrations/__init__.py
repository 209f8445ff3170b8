"""Parts for classes of other mm packages.

Subpackages subclass classes of mmseg, mmdet or mmpretrain; configs import what they
need. The modules here import none of these packages.
"""

from . import evaluation_rules, training_rules
