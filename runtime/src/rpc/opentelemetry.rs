//! Traces of calls with OpenTelemetry.

use ::opentelemetry::{
    Context,
    trace::{SpanContext, TraceContextExt, TraceFlags, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::trace::{TraceContext, Tracer};

/// Connects spans through the layer of `tracing-opentelemetry`, which has to be part of the subscriber and to take spans
/// of level `INFO`.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenTelemetry;

impl Tracer for OpenTelemetry {
    fn context(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let span = context.span();
        let span = span.span_context();
        TraceContext::new(
            u128::from_be_bytes(span.trace_id().to_bytes()),
            u64::from_be_bytes(span.span_id().to_bytes()),
            span.trace_flags().to_u8(),
        )
    }

    fn follow(&self, span: &Span, parent: TraceContext) {
        let remote = SpanContext::new(
            parent.trace_id().into(),
            parent.span_id().into(),
            TraceFlags::new(parent.flags()),
            true,
            TraceState::default(),
        );
        let parent = Context::new().with_remote_span_context(remote);
        // Without the layer the span belongs to no trace, and there is nothing to connect.
        if let Err(reason) = span.set_parent(parent) {
            tracing::debug!(%reason, "span is not traced");
        }
    }
}
