"""Data sets, and checks of the data that a config names."""

from .folder_check import check_data_folders
from .toy_scenes import ToyScenes

__all__ = ['ToyScenes', 'check_data_folders']
