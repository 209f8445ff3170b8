"""Pages of the documentation."""

import re
from functools import cache


@cache
def headings_of(path):
    """Return what headings of a page are called in links."""
    headings = re.findall(r'^#+ (.*)$', path.read_text(), re.MULTILINE)
    kept = (re.sub(r'[^\w\- ]', '', h.lower()) for h in headings)
    return {h.replace(' ', '-') for h in kept}
