"""mmengine's backend of local files, made atomic."""

import os

from mmengine.fileio import LocalBackend, register_backend

from .files import atomic_path


@register_backend('snnet_atomic', force=True)
class AtomicBackend(LocalBackend):
    """A backend of local files that have their names only when they are whole."""

    def put(self, obj: bytes, filepath: str | os.PathLike) -> None:
        with atomic_path(filepath) as temporary:
            super().put(obj, temporary)
