"""Traces to a collector over OTLP (http/protobuf), with OpenTelemetry's SDK. Its environment
variables hold: OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, and so
on."""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from headstart.gateway.tracing import names
from headstart.gateway.tracing.turn_trace import TraceSpan

log = logging.getLogger("headstart.traces")

SDK_LOGGERS = ("opentelemetry", "urllib3")
QUEUE_SPANS = 8192  # the SDK's own; when it is full the newest are dropped
EXPORT_TIMEOUT_S = 5


class OtlpSender:
    """See `headstart.gateway.tracing.traces.Sender`."""

    def __init__(self, endpoint: str) -> None:
        for name in SDK_LOGGERS:  # they would log each batch; `OneLine` says it once
            logging.getLogger(name).setLevel(logging.CRITICAL)
        version = importlib.metadata.version("headstart")
        service = os.environ.get("OTEL_SERVICE_NAME") or "headstart"
        resource = Resource.create({SERVICE_NAME: service, SERVICE_VERSION: version})
        exporter = OneLine(OTLPSpanExporter(timeout=EXPORT_TIMEOUT_S), endpoint)
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE_SPANS))
        self._tracer = self._provider.get_tracer("headstart", version)

    def send(self, root: TraceSpan, wall_minus_monotonic_ns: int) -> None:
        """One trace."""
        _emit(self._tracer, root, wall_minus_monotonic_ns, None)

    def close(self) -> None:
        self._provider.shutdown()


class OneLine(SpanExporter):
    """Logs when a collector stops taking traces and when it takes them again, and no more."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._is_well = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._inner.export(spans)
        except Exception as error:
            log.debug("a batch of traces failed", exc_info=error)
            result = SpanExportResult.FAILURE
        is_well = result is SpanExportResult.SUCCESS
        if is_well != self._is_well:
            self._is_well = is_well
            if is_well:
                log.info("the collector at %s takes traces again", self._endpoint)
            else:
                log.warning(
                    "the collector at %s takes no traces: they are dropped until it does",
                    self._endpoint,
                )
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _emit(tracer: Tracer, span: TraceSpan, offset_ns: int, parent: Span | None) -> None:
    inference = span.name.startswith(names.INFERENCE)
    made = tracer.start_span(
        span.name,
        context=Context() if parent is None else set_span_in_context(parent),
        kind=SpanKind.CLIENT if inference else SpanKind.INTERNAL,
        attributes=dict(span.attributes),
        start_time=span.start_ns + offset_ns,
    )
    if span.error is not None:
        made.set_attribute(names.ERROR_TYPE, span.error)
        made.set_status(Status(StatusCode.ERROR, span.error))
    for child in span.children:
        _emit(tracer, child, offset_ns, made)
    made.end(span.end_ns + offset_ns)
