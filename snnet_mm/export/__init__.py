"""Taking stitches away: as mm models, and as graphs for other runtimes."""
