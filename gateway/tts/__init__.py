"""Spoken answers: text cut into clauses, made into sound by a process of its own.

    text deltas ─▶ ClauseCutter ─clauses─▶ VoiceLink ═pipe═▶ worker: TtsScheduler, a Synthesiser
    SpokenResponse ◀─ sound of a clause ◀─ VoiceLink ◀═pipe═ s16 mono at 24 kHz, in pieces

May import: `audio`, `errors`, `runtime`.
Never: imports a synthesiser outside the worker. The gateway runs without the extra `voice`.
"""
