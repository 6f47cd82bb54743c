"""What drives a system under test: an engine in this process (`in_process`), a typed conversation
with it (`chat`), a recogniser that is told the words (`scripted_words`), and the packets that a
client sends (`packets`), as frames of a WebSocket (`websocket_frames`)."""
