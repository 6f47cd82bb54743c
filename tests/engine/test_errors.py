"""The tree of named errors."""

from __future__ import annotations

import re
from pathlib import Path

from headstart.engine import errors
from headstart.engine.errors import EngineError

EXAMPLES: tuple[EngineError, ...] = (
    errors.BadSettings("threads", "at least 1", 0),
    errors.BadWeights(Path("a/b.gguf"), "tensor x", "shape (1, 2)", "(2, 1)"),
    errors.UnsupportedModel(Path("b.gguf"), "architecture", ["llama", "qwen2"], "mamba"),
    errors.NoDevice("cuda:0", "torch has no CUDA", "install a build with it"),
    errors.DeviceFull("cuda:0"),
    errors.KernelFailed("out of memory for the activations of the layers"),
    errors.BadSampling("top_p", "above 0, at most 1", 1.5),
    errors.ContextFull(8, 9),
    errors.CacheFull(2, 1),
    errors.NoRoom(300, 20, 100, 4.5),
    errors.UnknownSession("s"),
    errors.UnknownSoftToken(77),
    errors.SoftTableFull(8, 9),
    errors.StreamClosed("s"),
    errors.PictureNotEncoded(640, 480),
    errors.BrokenNumbers("logits", float("nan")),
)


def test_every_error_has_a_code_of_its_own_and_a_place_in_the_tree() -> None:
    """Codes are distinct snake_case words, and the module's drawing names every class."""
    codes = [error.code for error in EXAMPLES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, EngineError)
    }
    bases = {"EngineError", "SessionRefused"}
    assert defined == {type(error).__name__ for error in EXAMPLES} | bases
    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in defined)


def test_every_sentence_states_the_facts() -> None:
    """What was expected and what came stand in the message; files go by name, not by path."""
    for error in EXAMPLES:
        for name, fact in vars(error).items():
            facts = [fact.name] if isinstance(fact, Path) else fact
            for one in facts if isinstance(facts, (list, tuple)) else [facts]:
                assert str(one) in str(error), f"{type(error).__name__} does not say {name}"
