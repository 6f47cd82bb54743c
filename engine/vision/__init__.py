"""Packaged vision: a frame becomes names with probabilities, and those become a few visual tokens.

`labeller.FrameLabeller` labels a frame (`efficientnet`, `faces`, `names`, `pixels`),
`connector.Connector` turns the labels into embeddings, and `encoder_cache` keeps results by a
picture's content.

May import: `errors`.
Never: trains anything.
"""

from headstart.engine.vision.connector import Connector, ConnectorSettings, Projected
from headstart.engine.vision.labeller import BadPicture, FrameLabeller, FrameLabels

__all__ = [
    "BadPicture",
    "Connector",
    "ConnectorSettings",
    "FrameLabeller",
    "FrameLabels",
    "Projected",
]
