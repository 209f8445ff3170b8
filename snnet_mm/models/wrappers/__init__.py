"""Models around any mm model that change how it is trained."""
