"""Recordings, pictures, documents and slides with known truth: what tutorials, tests and measurements use.

Each function fills a folder with files, writes a table ``file,labels`` of what occurs in each file (all that
a learner is shown) and returns the truth: what occurs where. The same seed gives the same files.
"""

from bagwise.datasets.media._files import Truth
from bagwise.datasets.media.collages import TEXTURES, make_collages
from bagwise.datasets.media.documents import TOPICS, make_documents
from bagwise.datasets.media.recordings import SPECIES, make_recordings
from bagwise.datasets.media.slides import make_slides

__all__ = [
    "SPECIES",
    "TEXTURES",
    "TOPICS",
    "Truth",
    "make_collages",
    "make_documents",
    "make_recordings",
    "make_slides",
]
