"""Camera frames become names with probabilities, and those a few visual tokens.

`sight.FrameLabeller` looks at a frame (`efficientnet`, `faces`, `pixels`), `connector.Connector`
makes tokens of what it saw, `encoder_cache` keeps them by a picture's content.

May import: `errors`.
Never: trains anything.
"""

from headstart.engine.vision.connector import Connector, ConnectorSettings, Projected
from headstart.engine.vision.sight import BadPicture, FrameLabeller, Sight

__all__ = [
    "BadPicture",
    "Connector",
    "ConnectorSettings",
    "FrameLabeller",
    "Projected",
    "Sight",
]
