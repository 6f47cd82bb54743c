"""The load-shedding ladder in `headstart bench tokens`, in virtual time."""

from __future__ import annotations

from typing import Any

from headstart.benchmarks.vision.sizes import OFFERED, SIDES_PX, under_load


def rows_of(*shares: float) -> dict[float, dict[str, Any]]:
    """By what is offered, if frames of the three sizes take these shares of time to encode."""
    sizes = [
        {"side_px": side, "encode_share": share}
        for side, share in zip(SIDES_PX, shares, strict=True)
    ]
    return {row["offered"]: row for row in under_load(sizes)}


def test_the_ladder_relieves_an_overloaded_engine() -> None:
    """Nothing is given up below its first mark. Above, fewer chunks are late than without it, and
    more frames are refused if smaller ones are encoded no faster."""
    rows, flat = rows_of(1.0, 0.6, 0.25), rows_of(1.0, 1.0, 1.0)
    assert rows[0.5]["frames_share"] == rows[0.5]["encode_share"] == 1
    for offered in OFFERED:
        assert rows[offered]["late_without"] == (offered > 1)
        if offered > 1:
            assert rows[offered]["late_share"] < 0.5
    assert rows[3.0]["encode_share"] < rows[1.5]["encode_share"] < 1
    assert rows[3.0]["refused"] < flat[3.0]["refused"]
