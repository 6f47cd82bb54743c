"""The `headstart` command: its sub-commands, and the client that plays files to a server.

A command imports what it needs when it runs, so that `headstart --help` is fast. Commands of other
packages (`bench`, `models`) are entry points and loaded only when they are called.

May import: `engine.api`, `gateway.config`, `gateway.errors`, `gateway.server`, `gateway.video`,
`recordings`, `talk`, `talk.long_file`, `talk.media`, `top`.
Never: imports torch, or the engine beyond `headstart.engine.api`.

"""

import os

# ONNX Runtime (the voice, and what reads print in pictures) reports each of its uses to its vendor
# unless this is set before it is loaded. Child processes inherit it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
