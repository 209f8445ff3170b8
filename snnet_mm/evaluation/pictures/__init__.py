"""Pictures of results, stitching spaces and predictions."""
