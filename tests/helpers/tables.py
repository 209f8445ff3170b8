"""Tables of made-up costs."""

from snnet_mm.stitching import StitchRow, StitchTable


def table_of(flops, input_size=(8, 8)):
    """A table of stitches of any space by their FLOPs, with seven times the params."""
    rows = [StitchRow(i, 'FS', '', f, 7 * f, input_size) for i, f in flops.items()]
    return StitchTable(rows)


def counts(row):
    """FLOPs and parameters of a row."""
    return row.flops, row.params
