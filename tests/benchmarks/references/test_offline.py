"""headstart.benchmarks.references.offline: how texts are compared."""

from __future__ import annotations

from headstart.benchmarks.references.offline import normaliser


def test_accents_count_in_no_language_but_their_letters_do() -> None:
    """Lists of prompts leave accents out, so they say nothing of hearing; English has rules of its
    own, for numbers too."""
    spanish = normaliser("es")
    assert spanish("¿Cuál número?").strip() == "cual numero"
    assert spanish("numero") != spanish("número dos")
    assert normaliser("en")("It costs twenty dollars.") == normaliser()("it costs $20")
