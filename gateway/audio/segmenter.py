"""The speech segmenter of one session: packets in, speech events out. No I/O, no clock of its own.

    24 kHz packets -> resampler -> 16 kHz sample clock -> VAD windows -> gate -> endpoint -> events

All decisions are made per 20 ms window or 10 ms block on the sample clock, never per packet, so the
same audio gives the same events whatever the packet sizes and the speed of arrival.

Audio held, with its bound: between utterances, the pre-roll (`prefix_padding_ms` and 30 windows);
in an utterance, less than one chunk; in a pause, the pause, which the endpoint policy ends. An
utterance is bounded by `max_utterance_s`: under VAD it is ended there and the next one begins;
under push-to-talk the packet is refused (`UtteranceTooLongError`).

"""

from __future__ import annotations

from collections.abc import Callable

from headstart.engine.api import TurnRef
from headstart.gateway.audio.clock import (
    BYTES_PER_SAMPLE,
    CLIENT_RATE_HZ,
    ENGINE_RATE_HZ,
    NS_PER_MS,
    client_samples_to_exact_ms,
    engine_samples_to_bytes,
    engine_samples_to_exact_ms,
    engine_samples_to_ms,
    engine_samples_to_ns,
    ms_to_client_samples,
    ms_to_engine_samples,
    ns_to_client_samples,
)
from headstart.gateway.audio.endpointing import EndpointVerdict, Pause
from headstart.gateway.audio.native_vad import speech_score
from headstart.gateway.audio.open_utterance import Arrival, AudioTail, OpenUtterance, Pauses
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.speech_events import (
    CommitTooShortError,
    Detection,
    DropReason,
    OddAudioError,
    PauseDetected,
    SegmenterError,
    SegmenterSettings,
    SpeechChunk,
    SpeechEvent,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    StopCause,
    UtteranceDropped,
    UtteranceTooLongError,
)
from headstart.gateway.audio.vad import (
    DOUBT_WINDOWS_MAX,
    WINDOW_SAMPLES,
    GateState,
    SpeechScore,
    VadHysteresis,
    VadWindow,
    VadWindows,
)

__all__ = [
    "CommitTooShortError",
    "Detection",
    "DropReason",
    "OddAudioError",
    "PauseDetected",
    "SegmenterError",
    "SegmenterSettings",
    "SpeechChunk",
    "SpeechEvent",
    "SpeechResumed",
    "SpeechSegmenter",
    "SpeechStarted",
    "SpeechStopped",
    "StopCause",
    "UtteranceDropped",
    "UtteranceTooLongError",
]

# An utterance that arrived in less than this fraction of its duration was fed from a file.
REALTIME_SHARE = 0.5
# Up to this size, audio that is no longer needed may stay.
TRIM_BYTES = engine_samples_to_bytes(ms_to_engine_samples(1000))


_Events = list[SpeechEvent]  # each step appends to it


class SpeechSegmenter:
    """See the module's docstring. Events are to be handled in order; each belongs to its `ref`.

    `detection` None is push-to-talk. `score` makes the speech detector for a threshold.
    """

    def __init__(
        self,
        detection: Detection | None,
        settings: SegmenterSettings | None = None,
        score: Callable[[float], SpeechScore] = speech_score,
    ) -> None:
        self.settings = settings or SegmenterSettings()
        self._make_score = score
        self._detection = detection
        self._resampler = StreamResampler(CLIENT_RATE_HZ, ENGINE_RATE_HZ)
        self._audio = AudioTail()
        self._windows = VadWindows(score(detection.threshold)) if detection else None
        self._gate = VadHysteresis()
        self._open: OpenUtterance | None = None
        self._pauses = Pauses()
        self._turns = 0
        self._consumed_sample = 0  # before it, audio was delivered or cleared: no pre-roll
        self._last: Arrival | None = None
        self._silence_fed_samples = 0  # by the watchdog since the last packet, 24 kHz

    @property
    def detection(self) -> Detection | None:
        return self._detection

    @property
    def clock_samples(self) -> int:
        """The session's clock: 16 kHz samples since the session began."""
        return self._audio.end_sample

    def feed(
        self, pcm24k: bytes, received_ns: int, captured_ns: int | None = None
    ) -> list[SpeechEvent]:
        """Take one packet of s16 mono 24 kHz audio, of any size.

        `captured_ns`: when its last sample was recorded, on this machine's monotonic clock.
        Raises OddAudioError and UtteranceTooLongError.
        """
        if len(pcm24k) % BYTES_PER_SAMPLE:
            raise OddAudioError(len(pcm24k))
        if not pcm24k:
            return []
        if self._detection is None:
            self._refuse_too_long(len(pcm24k) // BYTES_PER_SAMPLE)
        self._last = Arrival(received_ns, captured_ns)
        self._silence_fed_samples = 0
        return self._hear(self._resampler.feed_pcm(pcm24k), self._last)

    def tick(self, now_ns: int) -> list[SpeechEvent]:
        """The watchdog for missing packets: call it every 100 ms or so. If no packet has arrived
        for `watchdog_ms` within an utterance under VAD, the time since the last one counts as
        silence."""
        if self._detection is None or self._open is None or self._last is None:
            return []
        gone_ns = now_ns - self._last.received_ns
        if gone_ns < self.settings.watchdog_ms * NS_PER_MS:
            return []
        longest_ms = self._detection.endpoint.longest_silence_ms + self.settings.watchdog_ms
        due = (
            min(ns_to_client_samples(gone_ns), ms_to_client_samples(longest_ms))
            - self._silence_fed_samples
        )
        if due <= 0:
            return []
        self._silence_fed_samples += due
        silence = Arrival(now_ns, None, is_real=False)
        return self._hear(self._resampler.feed_pcm(bytes(due * BYTES_PER_SAMPLE)), silence)

    def commit(self) -> list[SpeechEvent]:
        """The client ends the utterance. During a hush, the turn ends where the hush began, so that
        the speculation stays valid. Raises CommitTooShortError; under VAD, audio before speech is
        no utterance, so with none open it reports 0 ms."""
        held_ms = self._held_ms()
        if self._open is None or self._last is None or held_ms < self.settings.commit_min_ms:
            raise CommitTooShortError(self.settings.commit_min_ms, held_ms)
        events = self._hear(self._resampler.flush_pcm(), self._last)
        if self._open is not None:  # otherwise the last samples brought the endpoint
            self._stop(events, StopCause.COMMIT, self.clock_samples, self._last)
        self._trim()
        return events

    def clear(self) -> list[SpeechEvent]:
        """Drop the open utterance and all held audio, including the pre-roll."""
        rest = self._resampler.flush_pcm()
        self._audio.append(rest)
        if self._windows is not None:
            self._windows.feed(rest)  # advances its clock; these windows are not used
        self._gate.close()
        events: _Events = []
        if self._open is not None:
            events.append(UtteranceDropped(self._open.ref, DropReason.CLEARED, self.clock_samples))
        self._close(self.clock_samples)
        self._trim()
        return events

    def set_end_probability(
        self,
        ref: TurnRef,
        end_probability: float,
        words: str = "",
        word_probability: float | None = None,
        mark_probability: float | None = None,
    ) -> None:
        """What is known of the pause of `ref` (`Pause`): the language model's end probability, the
        words that it is for, and how likely these and their mark are; ignored if too late."""
        known = self._open
        if known is not None and known.hushed and known.ref == ref:
            known.end_probability, known.words = end_probability, words
            known.word_probability, known.mark_probability = word_probability, mark_probability

    def answered(self, text: str) -> None:
        """The assistant's message that the next turn replies to."""
        if self._detection is not None:
            self._detection.endpoint.answered(text)

    def revoked(self, silence_samples: int) -> None:
        """The last endpoint is taken back: the speaker continued after this silence."""
        if self._detection is not None:
            self._detection.endpoint.continued_after(silence_samples)
            self._detection.endpoint.revoked()

    def set_detection(self, detection: Detection | None) -> list[SpeechEvent]:
        """Change the detection, also during speech: an open utterance stays open. Changing to
        push-to-talk, it then waits for `commit` (a hush is revoked); changing to VAD, it ends by
        silence, counted from now."""
        before, self._detection = self._detection, detection
        events: _Events = []
        if detection is None:
            self._windows = None
            self._gate.close()
            if self._open is not None and self._last is not None:
                if self._open.hushed:
                    self._resume(events, self._open, self.clock_samples)
                self._deliver_chunks(events, self._open, self.clock_samples, self._last)
            elif self._open is None:
                self._close(self.clock_samples)
        elif self._windows is None:
            self._windows = VadWindows(self._make_score(detection.threshold), self.clock_samples)
            if self._open is not None:
                speech = ms_to_engine_samples(detection.minimum_speech_ms)
                self._gate.open_at(self._open.start_sample, self.clock_samples, speech)
        elif before is None or before.threshold != detection.threshold:
            self._windows.score = self._make_score(detection.threshold)
        self._trim()
        return events

    # --- one step of the sample clock -------------------------------------------------------

    def _hear(self, pcm16k: bytes, arrival: Arrival) -> list[SpeechEvent]:
        events: _Events = []
        self._audio.append(pcm16k)
        if self._detection is None:
            if self._open is None:
                before = self.clock_samples - len(pcm16k) // BYTES_PER_SAMPLE
                self._begin(events, before, before, before, arrival)
            assert self._open is not None
            self._deliver_chunks(events, self._open, self.clock_samples, arrival)
        elif self._windows is not None:
            for window in self._windows.feed(pcm16k, from_speech=self._gate.is_quiet):
                if window.is_speech or not self._gate.is_quiet:
                    self._judge(events, self._detection, window, arrival)
        self._trim()
        return events

    def _judge(
        self, events: _Events, detection: Detection, window: VadWindow, arrival: Arrival
    ) -> None:
        """Judge one window under VAD: begin, continue, hush, resume or end."""
        now = window.end_sample
        state = self._gate.push(window)
        if not self._gate.is_open:
            return
        if self._open is None:
            speech = max(self._gate.speech_start, self._consumed_sample)
            preroll = ms_to_engine_samples(detection.prefix_padding_ms)
            self._begin(events, speech - preroll, speech, now, arrival)
        utterance = self._open
        assert utterance is not None
        if self._gate.speech_end == now and arrival.is_real:
            utterance.last_speech = arrival
        if state is GateState.SPEAKING and (silence := self._pauses.add_speech()):
            detection.endpoint.continued_after(silence)
        if utterance.hushed and state is GateState.SPEAKING:
            self._resume(events, utterance, now)
        if not utterance.hushed:
            self._deliver_chunks(events, utterance, now, arrival)
        if now - utterance.start_sample >= self.settings.max_utterance_s * ENGINE_RATE_HZ:
            self._stop(events, StopCause.LIMIT, now, arrival)
        elif state is GateState.STOPPING:
            self._judge_pause(events, detection, utterance, now, arrival)

    def _judge_pause(
        self,
        events: _Events,
        detection: Detection,
        utterance: OpenUtterance,
        now: int,
        arrival: Arrival,
    ) -> None:
        silence, speech = now - self._gate.speech_end, self._gate.speech_samples
        self._pauses.add_silence(silence)
        pause = Pause(
            silence,
            speech,
            utterance.end_probability,
            utterance.checks,
            utterance.words,
            utterance.word_probability,
            utterance.mark_probability,
        )
        verdict = detection.endpoint.judge(pause)
        if verdict is EndpointVerdict.WAIT:
            return
        enough = pause.speech_samples >= ms_to_engine_samples(detection.minimum_speech_ms)
        if enough and (not utterance.hushed or verdict is EndpointVerdict.RECHECK):
            self._deliver_rest(events, utterance, now, arrival)
            utterance.hushed = True
            utterance.checks += 1
            events.append(PauseDetected(utterance.ref, now))
        if verdict is EndpointVerdict.END and enough:
            self._stop(events, StopCause.SILENCE, now, arrival)
        elif verdict is EndpointVerdict.END:
            events.append(UtteranceDropped(utterance.ref, DropReason.TOO_SHORT, now))
            self._close(utterance.sent_sample)

    def _begin(self, events: _Events, start: int, speech: int, now: int, arrival: Arrival) -> None:
        start = max(start, self._consumed_sample, self._audio.start_sample)
        self._turns += 1
        ref = TurnRef(self._turns)
        self._open = OpenUtterance(ref, start, start, now, arrival, arrival)
        by_hand = self._detection is None
        # A policy waits until speech is noticed, so that is what it learns.
        silence = self._pauses.began(speech if by_hand else self._gate.noticed_start)
        started = SpeechStarted(
            ref, start, engine_samples_to_ms(start), speech, by_hand, continues=silence > 0
        )
        events.append(started)
        if self._detection is not None and silence:
            self._detection.endpoint.continued_after(silence)

    def _resume(self, events: _Events, utterance: OpenUtterance, now: int) -> None:
        utterance.hushed, utterance.end_probability, utterance.checks = False, None, 0
        utterance.words = ""
        utterance.word_probability = utterance.mark_probability = None
        utterance.ref = TurnRef(utterance.ref.turn, utterance.ref.revision + 1)
        events.append(SpeechResumed(utterance.ref, now))

    def _stop(self, events: _Events, cause: StopCause, now: int, arrival: Arrival) -> None:
        utterance = self._open
        assert utterance is not None
        if not utterance.hushed:
            self._deliver_rest(events, utterance, now, arrival)
        by_hand = self._detection is None
        audio_ns = engine_samples_to_ns(now - utterance.noticed_sample)
        took_ns = arrival.received_ns - utterance.began.received_ns
        last = arrival if by_hand else utterance.last_speech
        revocable_ms = 0
        if cause is StopCause.SILENCE and self._detection is not None:
            revocable_ms = self._detection.endpoint.revocable_ms
        events.append(
            SpeechStopped(
                ref=utterance.ref,
                cause=cause,
                end_sample=utterance.sent_sample,
                endpoint_sample=now,
                audio_end_ms=engine_samples_to_ms(now),
                last_speech_sample=utterance.sent_sample if by_hand else self._gate.speech_end,
                last_speech_received_ns=last.received_ns,
                last_speech_captured_ns=last.captured_ns,
                realtime=took_ns >= audio_ns * REALTIME_SHARE,
                revocable_ms=revocable_ms,
            )
        )
        counts = cause is StopCause.SILENCE and not revocable_ms
        self._pauses.ended(self._gate.speech_end, now, counts=counts)
        self._close(utterance.sent_sample)

    def _close(self, consumed_sample: int) -> None:
        self._gate.close()
        self._open = None
        self._consumed_sample = consumed_sample

    # --- delivery ---------------------------------------------------------------------------

    def _deliver_chunks(
        self, events: _Events, utterance: OpenUtterance, until: int, arrival: Arrival
    ) -> None:
        """Deliver every whole chunk up to `until`."""
        chunk = ms_to_engine_samples(self.settings.chunk_ms)
        while until - utterance.sent_sample >= chunk:
            self._deliver_rest(events, utterance, utterance.sent_sample + chunk, arrival)

    def _deliver_rest(
        self, events: _Events, utterance: OpenUtterance, until: int, arrival: Arrival
    ) -> None:
        """Deliver the rest up to `until` as one chunk."""
        start = utterance.sent_sample
        if until <= start:
            return
        pcm = self._audio.between(start, until)
        events.append(SpeechChunk(utterance.ref, start, pcm, arrival.received_ns))
        utterance.sent_sample = until

    def _trim(self) -> None:
        """Drop audio that is no longer needed. Only between packets: a large packet may end a turn
        long before its own end, and contain the next turn's pre-roll."""
        if self._open is not None:
            keep = self._open.sent_sample
        elif self._detection is None:
            keep = self.clock_samples
        else:
            if self._audio.size_bytes < TRIM_BYTES:
                return  # not worth it yet
            windows = self._gate.hysteresis.start_of + 1 + DOUBT_WINDOWS_MAX
            preroll = (
                ms_to_engine_samples(self._detection.prefix_padding_ms) + windows * WINDOW_SAMPLES
            )
            keep = max(self._consumed_sample, self.clock_samples - preroll)
        self._audio.drop_before(keep)

    def _held_ms(self) -> float:
        """Length of the open utterance with the resampler's input, in ms; 0 if none is open."""
        if self._open is None:
            return 0.0
        held_ms = engine_samples_to_exact_ms(self.clock_samples - self._open.start_sample)
        return held_ms + client_samples_to_exact_ms(self._resampler.pending_samples)

    def _refuse_too_long(self, samples: int) -> None:
        would_be_s = (self._held_ms() + client_samples_to_exact_ms(samples)) / 1000
        if would_be_s > self.settings.max_utterance_s:
            raise UtteranceTooLongError(self.settings.max_utterance_s, would_be_s)
