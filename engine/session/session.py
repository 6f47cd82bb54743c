"""One session: its commands, its KV stream and its answers.

`Engine` calls `run` for one command at a time, in the order they came. Audio is taken as an
`AudioBatch` instead, so that several sessions share one pass, and the words of a final pass come
before the command that needs it (`recognition`). Each command ends in `_sync_stream`, which
makes the KV stream read what the conversation reads now. While an answer is decoded it owns
the stream; words recognised meanwhile are added when it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from headstart.engine import api
from headstart.engine.chat.context_window import ContextWindow, Prompt
from headstart.engine.chat.render import Modality, RenderedPrompt, count
from headstart.engine.errors import ContextFull, EngineError, PictureNotEncoded
from headstart.engine.interfaces import Clock, ModelServices, Pcm, Recognition
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.token_stream import Reconciled, Stream
from headstart.engine.session.chunk_trace import ChunkTrace, stage_spans
from headstart.engine.session.command_queue import CommandQueue, chunk_due_ns
from headstart.engine.session.conversation import Conversation
from headstart.engine.session.errors import AnswerRunning, NothingHeard
from headstart.engine.session.generation import (
    Answer,
    answer_instructions,
    cancelled_unstarted,
    kv_stats_of,
    usage_of,
)
from headstart.engine.session.summary import Summaries
from headstart.engine.session.utterance import AudioBatch, Utterance, between_frames
from headstart.engine.session.writing import OutOfBandReadings

# Spans kept of one turn for its latency budget, the newest.
MAX_TURN_SPANS = 256
MAX_MOVES = 16
"""Reported with an answer, the newest."""

Emit = Callable[[api.Event], None]
NewStream = Callable[[str], Stream]
Mover = Callable[[KvMove], None]  # carries out an eviction's moves in memory


class Session:
    """State of one session. `emit` receives its events; `clock` is `time.monotonic_ns`."""

    def __init__(
        self,
        name: str,
        services: ModelServices,
        new_stream: NewStream,
        move: Mover,
        emit: Emit,
        clock: Clock,
    ) -> None:
        self.name = name
        self.stream = new_stream(name)
        self.conversation = Conversation(services, self.stream, clock)
        self.commands = CommandQueue(name)
        self.answer: Answer | None = None  # the conversation's
        self.side_answers: list[Answer] = []  # out of band
        self.traces: list[ChunkTrace] = []
        self.deadline_ns = 0  # of the stream's pending tokens
        self._services = services
        self._new_stream = new_stream
        self._move = move
        self._emit = emit
        self._clock = clock
        # Work done for the turn so far, most of it while the user was still speaking.
        self._turn_spans: deque[api.Span] = deque(maxlen=MAX_TURN_SPANS)
        self._rolled_back_before = 0
        self._summaries = Summaries(services, self.conversation)
        self._held_since_ns: int | None = None  # when the next answer could have begun
        self._own_readings = OutOfBandReadings(services.reader, name, self.stream)
        self._unanswered = False  # whether words came since the last answer
        self._moves: deque[api.Move] = deque(maxlen=MAX_MOVES)  # since the last answer
        self.speculated_kept = 0
        """Tokens drawn before the endpoint was sure, which an answer began with."""
        self.speculated_wasted = 0
        """The same, of answers that were given up."""

    # --- commands --------------------------------------------------------------------------------

    def run(self, command: api.Command) -> None:
        """Carry out one command. Raises an `EngineError`; then nothing has changed."""
        match command:
            case api.BeginSpeech():
                self._begin_speech(command)
            case api.Clip():
                self._emit(self.conversation.clips.hear(command))
            case api.Hush():
                self._hush(command)
            case api.Resume():
                self._resume(command)
            case api.EndSpeech():
                self._end_speech(command)
            case api.ContinueSpeech():
                self._continue_speech(command)
            case api.ReleaseSpeech():
                self.conversation.release()
            case api.DropSpeech():
                self.conversation.drop()
            case api.Frame():
                self.conversation.add_frame(command.image)
            case api.AddItem():
                self.conversation.add(command.item, command.after)
            case api.RemoveItem():
                self.conversation.remove(command.item_id)
                self._forget_summaries()
            case api.Instruct():
                self.conversation.instruct(command.instructions, command.blind, command.tools)
            case api.Remember():
                self.conversation.remember(command.window)
            case api.Respond():
                self._respond(command)
            case _:
                raise AssertionError(f"{type(command).__name__} is not a session command")
        self._sync_stream()

    def begin(self, command: api.Open) -> None:
        """Take over instructions and a conversation from `Open`, which may restore a session."""
        self.stream.share_within(command.share_domain)
        self.conversation.only_hears = command.only_hears
        self.conversation.instruct(command.instructions, command.blind, command.tools)
        self.conversation.remember(command.window)
        for item in command.items:
            try:
                self.conversation.add(item, None)
            except (ContextFull, PictureNotEncoded) as error:
                # The window was larger when this was said, or another encoder saw it.
                self.report(error, about="add_item", ref_id=item.item_id)
        self._sync_stream()

    def cancel(self, generation: int) -> None:
        """Cancel an answer; what was decoded of it stays in the conversation."""
        for answer in self.answers():
            if answer.generation == generation:
                answer.finished = api.FinishReason.CANCELLED
                self.conclude(answer)
        if self.commands.remove(
            lambda c: isinstance(c, api.Respond) and c.generation == generation
        ):
            self._held_since_ns = None
            self._own_readings.cancel(generation)
            self._emit_cancelled(generation)

    def streams(self) -> list[Stream]:
        """All streams of the session, the conversation's own first."""
        return [self.stream, *(answer.stream for answer in self.side_answers)]

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left to do until the next command."""
        if self.commands or self.side_answers or self.traces:
            return False
        return not (self.stream.pending_ahead if self.answer is None else self.answer.wants_steps)

    def give_up_kv(self) -> None:
        """Drop all K/V while at rest, for sessions that have work. The next command adds the
        tokens again; those of an answer that was begun before its endpoint was sure stay."""
        self.stream.recompute(0)
        if self.answer is None:
            self.stream.truncate(0)

    def close(self) -> None:
        for answer in self.side_answers:
            answer.stream.close()
        self.conversation.writing.close()
        self._own_readings.close()
        self.stream.close()

    # --- speech ----------------------------------------------------------------------------------

    def _open_utterance(self) -> Utterance:
        if self.conversation.utterance is None:
            raise NothingHeard(self.name)
        return self.conversation.utterance

    def _begin_speech(self, command: api.BeginSpeech) -> None:
        self.conversation.begin(
            Utterance(
                ref=command.ref,
                item_id=command.item_id,
                state=self._services.recognizer.open(self.stream),
                start_sample=command.start_sample,
            ),
            may_continue=command.may_continue,
        )
        self._turn_spans.clear()
        self._rolled_back_before = self.stream.rolled_back_kv_tokens

    def next_audio_batch(self, now_ns: int) -> AudioBatch:
        """Take the chunks to recognise next. Raises `NothingHeard` without an open utterance."""
        chunks = self.commands.pop_audio(now_ns)
        return AudioBatch(self._open_utterance(), chunks)

    def add_recognition(
        self, batch: AudioBatch, words: Recognition, began_ns: int, share: float
    ) -> None:
        """Take the recogniser's result for a batch; `share`: its part of the pass's cost."""
        self._turn_spans.extend(stage_spans(began_ns, words.stages_ms))
        batch.utterance.take(words, batch.samples)
        self._emit(batch.utterance.hearing(self.name))
        self._read(batch, words, share)

    def _read(self, batch: AudioBatch, words: Recognition, share: float) -> None:
        """Make the stream read the words of a batch; keep its sound; trace its chunks."""
        batch.keep_sound()
        prefilled_before = self.stream.prefilled_tokens
        rendered = self._sync_stream(ahead=batch.has_headroom(self._clock()))
        self.conversation.forget_unused()
        rolled_back = rendered.rolled_back_kv if rendered is not None else 0
        self.deadline_ns = chunk_due_ns(batch.chunks[-1])
        self.traces += batch.traces(words.stages_ms, share, prefilled_before, rolled_back)

    @property
    def next_is_heard(self) -> bool:
        """Whether the recogniser is needed for the next command."""
        heard = (api.Audio, api.Clip, api.ContinueSpeech)
        return isinstance(self.commands.next, heard) or self.needs_final_pass

    @property
    def needs_final_pass(self) -> bool:
        """Whether the next command ends the open utterance, perhaps for a while only, and it was
        not heard as a whole yet; or one right behind the sound that is next."""
        utterance = self.conversation.utterance
        if utterance is None:
            return False
        if isinstance(self.commands.next, api.Hush | api.EndSpeech):
            return not utterance.finished
        return self.commands.ends_behind_audio(self._clock())

    @property
    def unfinished_state(self) -> Any:
        """The recogniser's state of the open utterance."""
        return self._open_utterance().state

    def add_final_words(
        self, words: Recognition, began_ns: int, batch: AudioBatch | None = None
    ) -> None:
        """Take the result of the final pass, which heard `batch` too. Its words stay tentative
        until the endpoint is confirmed."""
        self._turn_spans.extend(stage_spans(began_ns, words.stages_ms))
        utterance = self._open_utterance()
        utterance.finish(words, 0 if batch is None else batch.samples)
        self.conversation.ask(utterance.text)
        try:
            self.conversation.look_closer(utterance.text)
        except EngineError as error:  # what was said is known all the same
            self.report(error, about="frame")
        self._emit(utterance.hearing(self.name))
        if batch is not None:
            self._read(batch, words, share=1.0)

    def _hush(self, command: api.Hush) -> None:
        utterance = self._open_utterance()
        if command.speculate is None or self.answer is not None:
            return
        if not utterance.says_something:
            return  # nothing to answer yet
        self._fit()
        prompt = self.conversation.prompt(with_utterance=True)
        tools = self.conversation.tools
        answer = Answer.begin(self._services, self.stream, prompt, command.speculate, tools)
        answer.sync_stream()
        answer.probe_end(self._services.chat)
        answer.told_as = command.ref if command.tell_text else None
        self.answer = answer
        self.deadline_ns = self._clock()

    def _resume(self, command: api.Resume) -> None:
        utterance = self._open_utterance()
        utterance.ref = command.ref
        utterance.finished = False
        self.drop_speculation()

    def _end_speech(self, command: api.EndSpeech) -> None:
        utterance = self._open_utterance()
        self._unanswered = self._unanswered or utterance.says_something
        entry = self.conversation.end(may_continue=command.may_continue)
        audio_tokens = count([entry])[Modality.AUDIO]
        known = (utterance.text, audio_tokens, utterance.transcribed)
        self._emit(api.Heard(self.name, command.ref, utterance.item_id, *known))

    def _continue_speech(self, command: api.ContinueSpeech) -> None:
        """Recognise the open utterance as the continuation of the ended one, as if no endpoint had
        been between them. Sound that cannot be recognised is lost, as in `recognize_batch`."""
        if self.answer is not None and not self.answer.speculative:
            raise AnswerRunning(self.name)
        heard = self.conversation.rejoin(command.item_id, command.answer_id)
        self.drop_speculation()
        self._forget_summaries()
        self._unanswered = True
        utterance = self._open_utterance()
        began_ns = self._clock()
        for sounds, frame in between_frames(heard):
            if sounds:
                self._rehear(utterance, np.concatenate(sounds), began_ns)
            if frame is not None:
                self.conversation.add_frame(frame)
        self._emit(utterance.hearing(self.name))

    def _rehear(self, utterance: Utterance, sound: Pcm, began_ns: int) -> None:
        words = self._services.recognizer.recognize_batch([utterance.state], [sound])[0]
        self._turn_spans.extend(stage_spans(began_ns, words.stages_ms))
        utterance.take(words, len(sound))

    # --- what is written in pictures -------------------------------------------------------------

    def take_readings(self) -> bool:
        """Add what was read in pictures since. Whether there was any."""
        taken = self.conversation.take_readings()
        self._turn_spans.extend(self.conversation.writing.spans)
        self.conversation.writing.spans.clear()
        if taken:
            self._sync_stream()
        return taken

    def waits_for_reading(self) -> bool:
        """Whether its next command is an answer that needs a reading under way: one out of band of
        its own pictures, another one of the conversation's."""
        command = self.commands.next
        if not isinstance(command, api.Respond) or self.commands.has_audio:
            self._held_since_ns = None
            return False
        now_ns = self._clock()
        if self._held_since_ns is None:
            self._held_since_ns = now_ns
        waited_ns = now_ns - self._held_since_ns
        if command.items is None:
            return self.conversation.writing.holds_up(waited_ns)
        own = self._own_readings.of(command)
        return own is not None and own.holds_up(waited_ns)

    # --- the stream ------------------------------------------------------------------------------

    def _sync_stream(self, *, ahead: bool = True) -> Reconciled | None:
        """Make the stream read the conversation. Returns None while an answer owns the stream.
        Without `ahead`, tentative words are kept as far as they are in the stream, not added."""
        if self.answer is not None and self.answer.speculative:
            if self.answer.prompt.ids == self.conversation.prompt(with_utterance=True).ids:
                return None
            self.drop_speculation()
        if self.answer is not None:
            return None
        rendered = self._fit()
        if self._summaries.due(rendered, self.stream.evicted_tokens):
            self.side_answers.append(self._summaries.begin(self.stream))
        wanted = rendered.ids
        if not ahead:
            sure = self.conversation.tokens(tentative=False)
            certain = len(sure) if wanted[: len(sure)] == sure else 0
            wanted = wanted[: max(certain, self.stream.common_prefix_len(wanted))]
        reconciled = self.stream.reconcile(wanted, kinds=rendered.kinds[: len(wanted)])
        if self.conversation.restore_thinned():  # a change before them took their K/V
            return self._sync_stream(ahead=ahead)
        return reconciled

    def _fit(self, window: ContextWindow | None = None) -> RenderedPrompt:
        """Evict what lies outside of the window; returns the remaining prompt."""
        silent = [answer for answer in self.side_answers if answer.silent]
        if silent and self.conversation.is_full(window):
            self._drop(silent[0])  # it shares the K/V to be moved
        rendered, moves = self.conversation.fit(window)
        for move in moves:
            self._move(move)
        return rendered

    def _thin(self) -> None:
        """Evict words of past turns, unless a summary is being written of them."""
        thinning = self._services.thinning
        if thinning is None or any(answer.silent for answer in self.side_answers):
            return
        for move in self.conversation.thin(thinning):
            self._move(move)

    def _forget_summaries(self) -> None:
        """An item was removed: summaries may mention it."""
        self._summaries.forget()
        for answer in [answer for answer in self.side_answers if answer.silent]:
            self._drop(answer)

    def _drop(self, answer: Answer) -> None:
        """Remove an out-of-band answer and close its stream."""
        self.side_answers.remove(answer)
        answer.stream.close()

    def _note(self) -> None:
        """Insert a finished summary into the conversation while nobody speaks."""
        if self.answer is None and self.conversation.utterance is None:
            self.conversation.append(self._summaries.take())

    def prefilled(self, began_ns: int, ended_ns: int) -> None:
        """Account a decoder step that prefilled tokens of this session."""
        for trace in self.traces:
            trace.prefill_ns += (ended_ns - began_ns) // len(self.traces)
        if self.answer is None:
            self._turn_spans.append(api.Span("prefill", began_ns, ended_ns))

    def moved(self, move: api.Move) -> None:
        """Report that the K/V are computed elsewhere from now on."""
        self._moves.append(move)
        self._emit(api.Moved(self.name, move))

    def report_end(self, probability: float, mark_probability: float | None = None) -> None:
        """Report the probability that the message ends behind the present words, and that of the
        mark with which they end."""
        utterance = self.conversation.utterance
        if utterance is None:
            return
        self._emit(
            api.EndOfMessage(
                session=self.name,
                ref=utterance.ref,
                at_sample=utterance.start_sample + utterance.samples,
                probability=probability,
                mark_probability=mark_probability,
            )
        )

    def drop_pending(self, error: EngineError) -> None:
        """Report that the pending tokens cannot be computed, and drop them, so that other sessions
        go on. The next answer adds them again."""
        self.report(error, about="audio")
        self.stream.truncate(self.stream.kv_len)

    def fail(self, answer: Answer, error: EngineError) -> None:
        """Fail an answer. Nothing was promised of a speculative one: the request itself will try
        again and report an error."""
        if answer.speculative:
            self.drop_speculation()
            self.stream.truncate(self.stream.kv_len)
            return
        answer.fail(error.code, error.public_message)
        self.flush(answer)

    def settle_traces(self) -> None:
        """Report the chunks whose words are all in the cache, or wait for an answer to end."""
        if self.traces and (self.stream.pending_ahead == 0 or self.answer is not None):
            now_ns = self._clock()
            for trace in self.traces:
                self._emit(trace.report(self.name, self.stream.prefilled_tokens, now_ns))
            self.traces.clear()

    # --- answering -------------------------------------------------------------------------------

    def answers(self) -> list[Answer]:
        """All running answers, the conversation's own first."""
        return ([self.answer] if self.answer is not None else []) + self.side_answers

    def is_running(self, answer: Answer) -> bool:
        """Whether `answer` is one of `answers`."""
        return any(running is answer for running in self.answers())

    def _new_answer(self, stream: Stream, prompt: Prompt, ask: api.Respond) -> Answer:
        tools = self.conversation.tools if ask.tools is None else ask.tools
        return Answer.begin(self._services, stream, prompt, ask.sampling, tools)

    def _respond(self, command: api.Respond) -> None:
        self._held_since_ns = None
        if command.items is not None:
            self._respond_out_of_band(command)
            return
        if self.answer is not None and not self.answer.speculative:
            raise AnswerRunning(self.name)
        if command.only_if_heard and not self._unanswered:
            self.drop_speculation()
            self._emit_cancelled(command.generation)
            return
        sampling, tools = command.sampling, command.tools or ()
        instructions = answer_instructions(command, self.conversation.tools)
        prompt = self.conversation.prompt(instructions, tools=tools)
        answer = self.answer
        if answer is None or not answer.matches(prompt, sampling):
            self.drop_speculation()
            self._fit(self.conversation.window_before(instructions, tools, sampling.max_tokens))
            prompt = self.conversation.prompt(instructions, tools=tools)
            answer = self._new_answer(self.stream, prompt, command)
            answer.sync_stream()
            self.stream.adopt()
            answer.cached_tokens = self.stream.kv_len
            self.answer = answer
        else:
            answer.cached_tokens = min(len(prompt.ids), self.stream.kv_len)
            self.speculated_kept += answer.speculated_tokens
        self.conversation.keep_view()
        self.conversation.open_answer(command.item_id)
        answer.generation, answer.item_id = command.generation, command.item_id
        self.conversation.writing.answer_begins()
        self.deadline_ns = self._clock()
        self.flush(answer)

    def _respond_out_of_band(self, command: api.Respond) -> None:
        """Answer out of band, in a stream of its own; the conversation does not change."""
        assert command.items is not None
        stream = self._new_stream(f"{self.name}/{command.generation}")
        stream.share_within(self.stream.share_domain, self.stream.place)
        own = command.instructions, command.tools, command.sampling.max_tokens
        readings = self._own_readings.of(command)
        try:
            items = command.items if readings is None else readings.noted_items()
            prompt = self.conversation.out_of_band_prompt(items, stream, *own)
            answer = self._new_answer(stream, prompt, command)
            if readings is not None:
                answer.read = readings.lines()
                answer.spans += readings.spans()
        finally:
            self._own_readings.close()
        answer.generation, answer.item_id = command.generation, command.item_id
        answer.out_of_band = True
        answer.sync_stream()
        answer.cached_tokens = stream.adopt()
        self.side_answers.append(answer)

    def drop_speculation(self) -> None:
        """Give up an answer that was begun before its endpoint was sure."""
        if self.answer is not None and self.answer.speculative:
            self.speculated_wasted += self.answer.speculated_tokens
            self.answer = None

    def flush(self, answer: Answer) -> None:
        """Send what may be sent of an answer, and conclude it if it is finished."""
        if answer.generation is None:
            if (prepared := answer.untold(self.name)) is not None:
                self._emit(prepared)
            return
        text = "" if answer.silent else answer.unsent()
        self._turn_spans.extend(self.conversation.stills.take_spans())
        spans = () if answer.has_sent else (*self._turn_spans, *answer.spans)
        if text:
            answer.sent_chars += len(text)
            self._emit(api.Delta(self.name, answer.generation, text, self._clock(), spans))
        for call in answer.unsent_calls(self.name, () if text else spans):
            self._emit(call)
            if call.done and not answer.out_of_band:
                complete = answer.complete_call(call.call)
                self.conversation.add_call(answer.item_id, call.call, complete)
        if answer.finished is not None:
            self.conclude(answer)

    def conclude(self, answer: Answer) -> None:
        """Report a finished answer and add it to the conversation."""
        assert answer.finished is not None
        assert answer.generation is not None
        if answer.silent:
            self._drop(answer)
            self._summaries.keep(answer)
            self._note()
            return
        self._emit(
            api.Finished(
                session=self.name,
                generation=answer.generation,
                reason=answer.finished,
                text=answer.text,
                usage=usage_of(
                    answer, self.stream.rolled_back_kv_tokens - self._rolled_back_before
                ),
                kv=self._kv_stats(answer.stream),
                decode_tok_s=answer.tok_s(),
                code=answer.code,
                message=answer.message,
                moves=tuple(self._moves),
                read=answer.read,
            )
        )
        self._moves.clear()
        if answer.out_of_band:
            self._drop(answer)
            return
        self.answer = None
        if answer.has_sent or answer.finished is not api.FinishReason.CANCELLED:
            self._unanswered = False
        self._turn_spans.clear()
        self.conversation.close_answer(answer.item_id, answer.text_tokens(self._services.tokenizer))
        self._thin()
        self._note()
        self._rolled_back_before = self.stream.rolled_back_kv_tokens
        try:
            self._sync_stream()
        except EngineError as error:
            self.report(error, about="answer")

    def _emit_cancelled(self, generation: int) -> None:
        self._emit(cancelled_unstarted(self.name, generation, self._kv_stats(self.stream)))

    def _kv_stats(self, stream: Stream) -> api.KvStats:
        return kv_stats_of(stream, self._services, self.conversation.window)

    def report(self, error: EngineError, about: str, ref_id: str = "") -> None:
        """Emit `Failed` for a command."""
        self._emit(api.Failed(self.name, about, error.code, error.public_message, ref_id))
