"""Names of spans and attributes: OpenTelemetry's GenAI conventions where there is one, or ours."""

from __future__ import annotations

# --- spans ---------------------------------------------------------------------------------------

TURN = "turn"
USER_SPEECH = "user_speech"
CHUNK = "chunk"
ENDPOINTING_WAIT = "endpointing_wait"
INFERENCE = "realtime_inference"  # and the model's name behind it
SPEECH = "speech"
PLAYOUT = "playout"

# --- GenAI ---------------------------------------------------------------------------------------

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
CONVERSATION = "gen_ai.conversation.id"
RESPONSE = "gen_ai.response.id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
ERROR_TYPE = "error.type"

OPERATION_REALTIME = "realtime_inference"
PROVIDER_HEADSTART = "headstart"

# --- as other voice frameworks call it -----------------------------------------------------------

TURN_NUMBER = "turn.number"
WAS_INTERRUPTED = "turn.was_interrupted"
USER_BOT_LATENCY = "turn.user_bot_latency_seconds"

# --- ours ----------------------------------------------------------------------------------------

HIDDEN = "headstart.hidden"
ANCHOR = "headstart.anchor"
REALTIME = "headstart.realtime"
OVER_BUDGET = "headstart.over_budget"
REASON = "headstart.reason"
FIRST_TOKEN = "headstart.first_token_seconds"
HIDDEN_WORK = "headstart.hidden_work_seconds"
CHUNK_SECONDS = "headstart.chunk.duration_seconds"
CHUNK_HEADROOM = "headstart.chunk.headroom_ratio"
CHUNK_OVERRUN = "headstart.chunk.overrun"
PREFILLED = "headstart.chunk.prefilled_tokens"
ROLLED_BACK = "headstart.chunk.rolled_back_tokens"
WAIT_OWNER = "headstart.wait.owner"
WAIT_SETTING = "headstart.wait.setting"
WAIT_VALUE = "headstart.wait.value"
AUDIO_SECONDS = "headstart.audio_seconds"
PLAYOUT_SOURCE = "headstart.playout.source"
