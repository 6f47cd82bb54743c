"""One OpenTelemetry trace a turn, for who sets OTEL_EXPORTER_OTLP_ENDPOINT (extra `otel`).

`turn_trace` makes a tree of spans of a turn's record, `traces` collects turns and hands them to a
thread, `otlp` sends them with OpenTelemetry's SDK, `names` has all names.

May import: `errors`, `runtime`, `telemetry`.
Never: waits for a collector on the loop, or sends what was said.
"""
