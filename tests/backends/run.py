"""Real LLM servers behind a real headstart: `python -m tests.backends.run [llamacpp] [vllm]`.

Each server lives in an environment of its own (`benchmarks/llm_servers/servers.py`). Every check is
a line as it happens; the end names what failed, and the exit status is 1 if anything did.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headstart.benchmarks.llm_servers import servers
from headstart.benchmarks.llm_servers.behind_server import BehindServer
from headstart.benchmarks.llm_servers.servers import Served
from headstart.engine import api
from headstart.engine.backends.llm_server.http_client import Timeouts

ROOT = Path(__file__).resolve().parents[2]
MODEL = "tiny"
SLOTS = 4
CONTEXT_TOKENS = 2048
SPOKEN = ("headstart/clips/capital.wav", "headstart/clips/demo.mp4")
TALK_S = 400.0
LONG = api.Sampling(repetition_penalty=1.0, max_tokens=200)
SHORT = api.Sampling(repetition_penalty=1.0, max_tokens=16)


def say(text: str) -> None:
    print(f"backends: {text}", flush=True)


def check(claim: str, holds: bool) -> None:
    """Raises `AssertionError` unless `holds`."""
    if not holds:
        raise AssertionError(claim)


@contextlib.contextmanager
def behind(served: Served) -> Iterator[BehindServer]:
    talk = BehindServer(served.url, served.tokenizer)
    try:
        yield talk
    finally:
        talk.close()


def asked(talk: BehindServer, name: str, text: str) -> None:
    """A session with one typed question."""
    item = api.Item("u", api.Role.USER, (api.Text(text),))
    talk.tell(api.Open(name, "Answer in one sentence."), api.AddItem(name, item))
    talk.settle()


def capabilities(served: Served) -> None:
    """Ids in and out, log probabilities, cached tokens, and a block size that was measured."""
    with behind(served) as talk:
        found = talk.capabilities
        say(f"{served.name}: " + "; ".join(f"{k}: {v}" for k, v in found.facts().items()))
        check("the tokenizer was compared", found.tokenizer_checked)
        check("ids go in", found.prompt.value == "token ids")
        check("log probabilities are told", found.logprobs > 0)
        check("the context is told", found.context_measured)
        check("cached tokens are told", found.tells_cached)
        check("the block was measured", found.block_measured)


def spoken_ahead(served: Served) -> None:
    """Words are in the server's cache when the question ends, by its own count."""
    with behind(served) as talk:
        talk.tell(api.Open("s", "Answer in one sentence."))
        spoken = (f"number {n} of the long list that I read to you" for n in range(20))
        talk.say("s", " ".join(spoken))
        talk.hush("s")
        talk.settle()
        ends = [e for e in talk.events if isinstance(e, api.EndOfMessage)]
        check("the end of the message was estimated", len(ends) == 1)
        talk.tell(api.Resume("s", api.TurnRef(1, 1)))
        talk.settle()
        talk.tell(api.EndSpeech("s", api.TurnRef(1, 1), 0), api.Respond("s", 1, "a", LONG))
        talk.until(lambda: talk.finished(1) is not None)
        done = talk.finished(1)
        assert done is not None
        check("it answered", done.reason in (api.FinishReason.STOP, api.FinishReason.LENGTH))
        check("it said something", len(done.text) > 0)
        tail = done.usage.input - done.usage.cached
        bound = talk.capabilities.block_tokens + 16
        check(f"{tail} tokens were left to compute, at most {bound}", tail <= bound)


def barge_in(served: Served) -> None:
    """A cancelled answer is cut where it was; the server takes the next one at once."""
    with behind(served) as talk:
        asked(talk, "s", "Tell me a long story about a dragon.")
        talk.tell(api.Respond("s", 1, "a1", LONG))
        talk.until(lambda: len(talk.text(1)) > 20)
        talk.tell(api.Cancel("s", 1))
        talk.settle()
        done = talk.finished(1)
        assert done is not None
        check("it was cancelled", done.reason is api.FinishReason.CANCELLED)
        check("what was said is what was sent", done.text == talk.text(1))
        talk.tell(api.Respond("s", 2, "a2", SHORT))
        talk.until(lambda: talk.finished(2) is not None)
        check("the next answer came", talk.finished(2).code == "")  # type: ignore[union-attr]


def eight_sessions(served: Served) -> None:
    """Each gets an answer of its own; the same question has the same answer."""
    with behind(served) as talk:
        names = [f"s{n}" for n in range(8)]
        for name in names:
            asked(talk, name, "What is the capital of France?")
        greedy = api.Sampling(repetition_penalty=1.0, max_tokens=16)
        talk.tell(*(api.Respond(name, n, "a", greedy) for n, name in enumerate(names, 1)))
        talk.until(lambda: all(talk.finished(n) for n in range(1, 9)))
        codes = [talk.finished(n).code for n in range(1, 9)]  # type: ignore[union-attr]
        check(f"none failed: {codes}", codes == [""] * 8)
        check("all said something", all(talk.text(n) for n in range(1, 9)))


def too_long(served: Served) -> None:
    """Far more than the context is said: the oldest is forgotten, and it still answers."""
    with behind(served) as talk:
        for n in range(26):
            text = f"fact {n}: " + "the quick brown fox jumps over the lazy dog " * 8
            item = api.Item(f"u{n}", api.Role.USER, (api.Text(text),))
            opening = [api.Open("s", "Be brief.")] if n == 0 else []
            talk.tell(*opening, api.AddItem("s", item))
            talk.settle()
        talk.tell(api.Respond("s", 1, "a", SHORT))
        talk.until(lambda: talk.finished(1) is not None)
        done = talk.finished(1)
        assert done is not None
        check(f"it answered: {done.message}", done.code == "")
        check("something was forgotten", talk.engine.totals.evicted > 0)


def stalled(served: Served) -> None:
    """Its process is stopped in mid-answer: a named error, and it is asked again. When it goes on,
    so does the answer."""
    hasty = Timeouts(connect_s=5.0, first_s=20.0, between_s=3.0)
    talk = BehindServer(served.url, served.tokenizer, timeouts=hasty)
    group = os.getpgid(served.process.pid)
    try:
        asked(talk, "s", "Tell me a long story about a dragon.")
        talk.tell(api.Respond("s", 1, "a1", LONG))
        talk.until(lambda: len(talk.text(1)) > 10)
        os.killpg(group, signal.SIGSTOP)
        talk.until(lambda: talk.backend.totals.retries > 0)
        os.killpg(group, signal.SIGCONT)
        talk.until(lambda: talk.finished(1) is not None)
        done = talk.finished(1)
        assert done is not None
        check(f"the answer went on: {done.message}", done.code == "")
        check("nothing came twice", done.text == talk.text(1))
    finally:
        os.killpg(group, signal.SIGCONT)
        talk.close()


def taken_over(served: Served) -> None:
    """Of two servers the one that answers is killed: the other one ends the answer."""
    with servers.serving(served.name, MODEL, slots=SLOTS, context_tokens=CONTEXT_TOKENS) as second:
        talk = BehindServer(second.url, served.tokenizer, others=[served.url])
        try:
            names = (f"s{n}" for n in itertools.count())
            name = next(n for n in names if _opened_at(talk, n, second.url))
            asked_there = api.Item("u", api.Role.USER, (api.Text("Tell me a long story."),))
            talk.tell(api.AddItem(name, asked_there), api.Respond(name, 1, "a1", LONG))
            talk.until(lambda: len(talk.text(1)) > 10)
            servers.stop(second.process)
            talk.until(lambda: talk.finished(1) is not None)
            done = talk.finished(1)
            assert done is not None
            check(f"the answer went on: {done.message}", done.code == "")
            check("nothing came twice", done.text == talk.text(1))
            (move,) = done.moves
            check("it moved", (move.from_url, move.to_url) == (second.url, served.url))
            states = {each.url: each.state for each in talk.backend.status()}
            check(f"states are told: {states}", states[second.url] == "down")
        finally:
            talk.close()


def _opened_at(talk: BehindServer, name: str, url: str) -> bool:
    """Open a session; whether it is at the server at `url`."""
    talk.tell(api.Open(name, "Answer at length."))
    talk.settle()
    server = talk.backend.servers.of(name)
    return server is not None and server.url == url


def killed(served: Served) -> None:
    """The server dies in mid-answer and comes back: a named error, then the session goes on."""
    with behind(served) as talk:
        asked(talk, "s", "Tell me a long story about a dragon.")
        talk.tell(api.Respond("s", 1, "a1", LONG))
        talk.until(lambda: len(talk.text(1)) > 10)
        servers.stop(served.process)
        talk.until(lambda: talk.finished(1) is not None)
        code = talk.finished(1).code  # type: ignore[union-attr]
        check(f"the error is named: {code}", code in ("llm_unreachable", "llm_connection_lost"))
        port = int(served.url.rpartition(":")[2])
        with servers.serving(
            served.name, MODEL, slots=SLOTS, context_tokens=CONTEXT_TOKENS, port=port
        ):
            talk.tell(api.Respond("s", 2, "a2", SHORT))
            talk.until(lambda: talk.finished(2) is not None)
            done = talk.finished(2)
            assert done is not None
            check(f"the next answer came: {done.message}", done.code == "" and done.text != "")


def conversation(served: Served) -> None:
    """`headstart serve --llm` and `headstart talk`: two spoken turns, one about a picture."""
    serve = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    serve += ["--model", MODEL, "--llm", served.url, "--tokenizer", str(served.tokenizer)]
    serve += ["--set", "voice=none"]
    process = subprocess.Popen(serve, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        talk = [sys.executable, "-m", "headstart", "talk", *SPOKEN, "--url", url, "--json"]
        done = subprocess.run(talk, cwd=ROOT, capture_output=True, text=True, timeout=TALK_S)
        check(f"headstart talk ended well: {done.stderr[-500:]}", done.returncode == 0)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        for turn in result["turns"]:
            said = json.dumps(turn, ensure_ascii=False)
            say(f"{served.name}: {said[:600]}")
        check("both turns were answered", len(result["turns"]) == len(SPOKEN))
    finally:
        process.terminate()
        process.wait(30)


CHECKS: tuple[Callable[[Served], None], ...] = (
    capabilities,
    spoken_ahead,
    barge_in,
    eight_sessions,
    too_long,
    conversation,
    stalled,
    taken_over,
    killed,  # the last: it takes the server with it
)


def main() -> int:
    """Run all checks of the servers named on the command line, or of all."""
    failed = []
    for name in sys.argv[1:] or servers.NAMES:
        try:
            servers.build(name)
            with servers.serving(name, MODEL, slots=SLOTS, context_tokens=CONTEXT_TOKENS) as served:
                for each in CHECKS:
                    failed += _one(name, served, each)
        except Exception as error:
            # The other server is still to be checked.
            failed.append(f"{name}: {error!r}")
            say(failed[-1])
    say("failed: " + "; ".join(failed) if failed else "all good")
    return 1 if failed else 0


def _one(name: str, served: Served, each: Callable[[Served], None]) -> list[str]:
    """The names of what failed."""
    began_s = time.monotonic()
    try:
        each(served)
    except Exception as error:
        # Every check is run and named.
        say(f"{name}: {each.__name__} FAILED: {error!r}")
        return [f"{name} {each.__name__}"]
    say(f"{name}: {each.__name__} passed in {time.monotonic() - began_s:.0f} s")
    return []


if __name__ == "__main__":
    sys.exit(main())
