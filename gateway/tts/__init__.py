"""Speech synthesis: text is split into clauses, which a separate process synthesises.

    text deltas ─▶ ClauseCutter ─clauses─▶ VoiceLink ═pipe═▶ worker: TtsScheduler, a Synthesiser
    SpokenResponse ◀─ a clause's audio ◀─ VoiceLink ◀═pipe═ s16 mono at 24 kHz, in pieces

`kept_halves` keeps what a voice's loading makes for later starts.

May import: `audio`, `errors`, `runtime`.
Never: imports a synthesiser outside the worker. The gateway runs without the extra `voice`.

"""
