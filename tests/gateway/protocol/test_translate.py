from typing import Any

import pytest
from openai.types.realtime import ResponseCreateEvent, SessionUpdateEvent
from pydantic import BaseModel, ValidationError

from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.schema import strict
from headstart.gateway.protocol.translate import first_error


def _error(model: type[BaseModel], value: Any) -> ProtocolError:
    with pytest.raises(ValidationError) as caught:
        strict(model).model_validate(value)
    return first_error(caught.value)


def _session(**session: Any) -> ProtocolError:
    value = {"type": "session.update", "session": {"type": "realtime", **session}}
    return _error(SessionUpdateEvent, value)


@pytest.mark.parametrize(
    ("session", "code", "param", "message"),
    [
        (
            {"instructions": 5},
            "invalid_type",
            "session.instructions",
            "Invalid type for 'session.instructions': expected a string, but got an integer "
            "instead.",
        ),
        (
            {"tools": [{"type": "function"}, {"type": "function", "meta": {}}]},
            "unknown_parameter",
            "session.tools[1].meta",
            "Unknown parameter: 'session.tools[1].meta'.",
        ),
        (
            {"tool_choice": {"type": "function"}},
            "missing_required_parameter",
            "session.tool_choice.name",
            "Missing required parameter: 'session.tool_choice.name'.",
        ),
        (
            {"tool_choice": "sometimes"},
            "invalid_value",
            "session.tool_choice",
            "Invalid value: 'sometimes'. Supported values are: 'none', 'auto', and 'required'.",
        ),
        (
            {"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 1.5}}}},
            "invalid_value",
            "session.audio.input.turn_detection.threshold",
            "Invalid value: '1.5'. Expected 'session.audio.input.turn_detection.threshold' to be "
            "at most 1.0.",
        ),
        (
            {"audio": {"input": {"turn_detection": {"threshold": 0.5}}}},
            "missing_required_parameter",
            "session.audio.input.turn_detection.type",
            "Missing required parameter: 'session.audio.input.turn_detection.type'.",
        ),
        (
            {"audio": {"input": {"turn_detection": "server_vad"}}},
            "invalid_type",
            "session.audio.input.turn_detection",
            "Invalid type for 'session.audio.input.turn_detection': expected an object, but got a "
            "string instead.",
        ),
        (
            {"audio": {"input": {"turn_detection": {"type": 1}}}},
            "invalid_type",
            "session.audio.input.turn_detection.type",
            "Invalid type for 'session.audio.input.turn_detection.type': expected a string, but "
            "got an integer instead.",
        ),
        (
            {"tracing": 4},
            "invalid_type",
            "session.tracing",
            "Invalid type for 'session.tracing': expected an object or a string, but got an "
            "integer instead.",
        ),
        (
            {"output_modalities": ["text", "audio"]},
            "invalid_value",
            "session.output_modalities",
            "Invalid value: an array. Expected 'session.output_modalities' to be an array of "
            "exactly one value.",
        ),
        (
            {"output_modalities": []},
            "invalid_value",
            "session.output_modalities",
            "Invalid value: an array. Expected 'session.output_modalities' to be an array of at "
            "least 1 values.",
        ),
        (
            {"tools": [{"type": "function"}] * 1025},
            "array_above_max_length",
            "session.tools",
            "Invalid 'session.tools': array too long. Expected an array with maximum length 1024, "
            "but got an array with length 1025",
        ),
    ],
)
def test_each_kind_of_error_has_its_code_path_and_sentence(
    session: dict[str, Any], code: str, param: str, message: str
) -> None:
    """No class name of the library stands in a path, and the sentence says what was expected."""
    error = _session(**session)
    assert (error.code, error.param, error.message) == (code, param, message)


def test_of_many_errors_the_first_is_reported() -> None:
    """In the order of the schema's fields; audio stands before tools."""
    error = _session(tools=4, audio={"input": 5})
    assert error.param == "session.audio.input"


def test_errors_in_keys_name_the_object_and_the_key() -> None:
    """Metadata holds its keys, its values and their number to limits."""

    def metadata(value: dict[str, str]) -> ProtocolError:
        return _error(
            ResponseCreateEvent, {"type": "response.create", "response": {"metadata": value}}
        )

    too_many = metadata({str(n): "" for n in range(17)})
    assert (too_many.code, too_many.param) == ("invalid_value", "response.metadata")
    long_key = metadata({"k" * 65: ""})
    assert long_key.code == "string_above_max_length"
    assert long_key.param == "response.metadata." + "k" * 65
    long_value = metadata({"k": "v" * 513})
    assert (long_value.code, long_value.param) == ("string_above_max_length", "response.metadata.k")
