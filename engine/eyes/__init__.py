"""Eyes: camera frames become names with probabilities, and those a few visual tokens.

eyes = Eyes.load(efficientnet_path, names_path)
connector = Connector(tokenize, embed, d_model)
connector.project(eyes.look(rgb)).embeddings      [n, d_model]
"""

from engine.eyes.connector import Connector, ConnectorSettings, Projected
from engine.eyes.sight import BadPicture, Eyes, Sight

__all__ = [
    "BadPicture",
    "Connector",
    "ConnectorSettings",
    "Eyes",
    "Projected",
    "Sight",
]
