"""What can go wrong at an LLM server.

LlmServerError
├── LlmUnreachable       nobody listens at the URL                    retried
├── LlmConnectionLost    it closed the connection before the end      retried
├── LlmStalled           nothing came for too long                    retried
├── LlmBusy              429, or 503                                  retried
├── LlmFailed            another 5xx, or an error inside a stream     retried
├── LlmGarbage           a reply that is no completion                retried
├── LlmTlsError          its certificate cannot be verified
├── LlmKeyRefused        401 or 403
├── LlmModelUnknown      it has no model of that name, or several and none was named
├── LlmModelChanged      it answers with another model than at start
├── LlmTokenizerDiffers  it encodes a text to other tokens than --tokenizer
├── LlmContextShort      its context is shorter than the window asked for
├── LlmRefused           any other 4xx
├── LlmServersDiffer     two of several servers do not serve the same
└── LlmCannot            what was asked for needs something that the server lacks
SessionRefused
└── LlmNoServer          of several servers, all are full, down or draining
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from headstart.engine.errors import EngineError, SessionRefused


def encodable(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair, which JSON may spell and no encoder
    takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class LlmServerError(EngineError):
    """`retryable`: whether the same request may succeed. `retry_after_s`: no sooner than that."""

    code = "llm_server_error"
    retryable: ClassVar[bool] = False
    retry_after_s: float = 0.0

    def __init__(self, message: str) -> None:
        super().__init__(encodable(message))  # much of it is what the server said


class LlmUnreachable(LlmServerError):
    code = "llm_unreachable"
    retryable = True

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"no LLM server answers at {url}: {why}")

    @property
    def public_message(self) -> str:
        return "the LLM server does not answer"


class LlmConnectionLost(LlmServerError):
    code = "llm_connection_lost"
    retryable = True

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the LLM server broke off its reply, or speaks no HTTP: {why}")


class LlmStalled(LlmServerError):
    code = "llm_stalled"
    retryable = True

    def __init__(self, waited_s: float) -> None:
        self.waited_s = waited_s
        super().__init__(f"the LLM server sent nothing for {waited_s:g} s")


class LlmBusy(LlmServerError):
    code = "llm_busy"
    retryable = True

    def __init__(self, status: int, message: str, retry_after_s: float = 0.0) -> None:
        self.status = status
        self.retry_after_s = retry_after_s
        super().__init__(f"the LLM server is busy (status {status}): {message}")


class LlmFailed(LlmServerError):
    code = "llm_failed"
    retryable = True

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"the LLM server failed (status {status}): {message}")


class LlmGarbage(LlmServerError):
    code = "llm_garbage"
    retryable = True

    def __init__(self, expected: str, got: str) -> None:
        self.expected, self.got = expected, got
        super().__init__(f"the LLM server's reply is not {expected}: {got}")


class LlmTlsError(LlmServerError):
    code = "llm_tls"

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        super().__init__(f"the certificate of the LLM server at {url} cannot be verified: {why}")

    @property
    def public_message(self) -> str:
        return "the certificate of the LLM server cannot be verified"


class LlmKeyRefused(LlmServerError):
    code = "llm_key_refused"

    def __init__(self, status: int, with_key: bool) -> None:
        self.status = status
        what = "refused the key" if with_key else "wants a key (--llm-key-env names its variable)"
        super().__init__(f"the LLM server {what}: status {status}")


class LlmModelUnknown(LlmServerError):
    code = "llm_model_unknown"

    def __init__(self, wanted: str | None, served: Sequence[str], url: str) -> None:
        self.wanted, self.served, self.url = wanted, tuple(served), url
        names = ", ".join(served)
        if wanted is not None:
            text = f"the LLM server at {url} has no model {wanted!r}; it serves: {names}"
        elif served:
            text = f"the LLM server at {url} has several models, name one with --llm-model: {names}"
        else:
            text = (
                f"the LLM server at {url} lists no model under {url}/v1/models: expected the "
                "address of a server with OpenAI's API, as http://127.0.0.1:8000. If that is one, "
                "name its model with --llm-model"
            )
        super().__init__(text)

    @property
    def public_message(self) -> str:
        return "the LLM server does not have the model"


class LlmModelChanged(LlmServerError):
    code = "llm_model_changed"

    def __init__(self, before: str, now: str) -> None:
        self.before, self.now = before, now
        super().__init__(
            f"the LLM server answers with model {now!r}; at start it was {before!r}: restart the "
            f"engine to use it"
        )


class LlmTokenizerDiffers(LlmServerError):
    code = "llm_tokenizer_differs"

    def __init__(self, text: str, ours: Sequence[int], theirs: Sequence[int]) -> None:
        self.ours, self.theirs = tuple(ours), tuple(theirs)
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        at = min(len(ours), len(theirs)) if at is None else at
        super().__init__(
            f"--tokenizer is not the one of the LLM server's model: for {text!r} we have "
            f"{len(ours)} tokens and the server {len(theirs)}; number {at} is "
            f"{list(ours[at : at + 1])} here and {list(theirs[at : at + 1])} there"
        )


class LlmContextShort(LlmServerError):
    code = "llm_context_short"

    def __init__(self, wanted: int, context_tokens: int, reserve: int) -> None:
        self.wanted, self.context_tokens = wanted, context_tokens
        super().__init__(
            f"window_tokens is {wanted}, and the LLM server's context has {context_tokens} tokens, "
            f"of which {reserve} are kept for an answer"
        )


class LlmRefused(LlmServerError):
    code = "llm_refused"

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(f"the LLM server refused the request (status {status}): {message}")


class LlmServersDiffer(LlmServerError):
    code = "llm_servers_differ"

    def __init__(self, what: str, first: tuple[str, object], other: tuple[str, object]) -> None:
        self.what, self.first, self.other = what, first, other
        super().__init__(
            f"the LLM servers must serve the same: {what} is {first[1]!r} at {first[0]} and "
            f"{other[1]!r} at {other[0]}"
        )


class LlmNoServer(SessionRefused):
    """`states`: of each server. Another attempt may succeed after `retry_after_s`."""

    code = "llm_no_server"

    def __init__(self, reason: str, states: Sequence[str], retry_after_s: float) -> None:
        self.reason, self.states, self.retry_after_s = reason, tuple(states), retry_after_s
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        why = "all that are ready are full" if reason == "full" else "none is ready"
        super().__init__(
            f"no LLM server takes the session: {why} ({counts}); try again in {retry_after_s:.1f} s"
        )


class LlmCannot(LlmServerError):
    code = "llm_cannot"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} is not possible with this LLM server: {why}")
