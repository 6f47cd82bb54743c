"""WebRTC: the same session as over a WebSocket, with sound and pictures on tracks of their own."""
