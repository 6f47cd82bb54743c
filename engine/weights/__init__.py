"""Weights: what exists (`manifest`), where it is stored (`store`), how it is fetched (`fetch`).

    locate("smollm2-135m")            the path of a fetched, verified weight, or WeightsMissing
    ensure("smollm2-135m")            the same, fetched first if necessary
    resolve_model("small")            every path a model needs; falls back to `tiny` with a notice

May import: `errors`.
Never: imports torch, or uses a file whose SHA-256 differs from the manifest's.
"""

from headstart.engine.weights.errors import (
    DiskFull,
    FetchFailed,
    IntegrityError,
    ManifestError,
    SourceFailed,
    StoreNotWritable,
    UnknownName,
    WeightsError,
    WeightsMissing,
)
from headstart.engine.weights.fetch import (
    Progress,
    ResolvedModel,
    ResolvedSenses,
    ensure,
    known_recognizers,
    resolve_model,
    resolve_senses,
    whispers,
)
from headstart.engine.weights.manifest import Weight
from headstart.engine.weights.store import home, locate

__all__ = [
    "DiskFull",
    "FetchFailed",
    "IntegrityError",
    "ManifestError",
    "Progress",
    "ResolvedModel",
    "ResolvedSenses",
    "SourceFailed",
    "StoreNotWritable",
    "UnknownName",
    "Weight",
    "WeightsError",
    "WeightsMissing",
    "ensure",
    "home",
    "known_recognizers",
    "locate",
    "resolve_model",
    "resolve_senses",
    "whispers",
]
