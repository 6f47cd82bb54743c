"""What all systems have in common."""

MODEL = "small"
VOICE = "joe"
EARS = "whisper-tiny.en"
INSTRUCTIONS = (
    "You are a friendly assistant in a spoken conversation. Answer in one or two short, plain "
    "sentences."
)
MAX_TOKENS = 96
TEMPERATURE = 0.0
THREADS = 2

PEER_ENVIRONMENT = {
    "OMP_NUM_THREADS": str(THREADS),
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
"""Of the peers' processes: as many threads as cores, and no models but those they are given."""
