"""Spoken answers: text cut into clauses, made into sound by a process of its own.

    text deltas ─▶ ClauseCutter ─clauses─▶ VoiceLink ═pipe═▶ worker process: Desk, a Synthesiser
    Speaking ◀─ how much of which clause ◀─ VoiceLink ◀═pipe═ s16 mono at 24 kHz, piece by piece

Nothing here imports a synthesiser but the worker: the gateway runs without the extra `voice`.
"""
