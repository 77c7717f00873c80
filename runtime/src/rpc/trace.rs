//! Trace contexts: what lets a span of a caller go on in the endpoint that it calls.

use std::{
    fmt,
    num::{NonZeroU64, NonZeroU128},
    str::FromStr,
};

use thiserror::Error;
use tracing::Span;

use super::gateway::Method;

/// Who a span is, for spans of other processes: the `traceparent` of W3C Trace Context, version 00.
///
/// Travels in the head of calls, as 16 bytes of trace, 8 bytes of span and one of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: NonZeroU128,
    span: NonZeroU64,
    flags: u8,
}

impl TraceContext {
    /// A context; `None` for a trace or span of zero, which the standard calls invalid.
    #[must_use]
    pub fn new(trace: u128, span: u64, flags: u8) -> Option<Self> {
        Some(Self {
            trace: NonZeroU128::new(trace)?,
            span: NonZeroU64::new(span)?,
            flags,
        })
    }

    /// The trace, the same for all spans that belong together.
    #[must_use]
    pub fn trace_id(&self) -> u128 {
        self.trace.get()
    }

    /// The span within the trace.
    #[must_use]
    pub fn span_id(&self) -> u64 {
        self.span.get()
    }

    /// The flags; bit 0 says that the caller records the trace.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.flags
    }
}

/// As the header `traceparent` has it: `00-<trace>-<span>-<flags>` in lower-case hexadecimal.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:032x}-{:016x}-{:02x}",
            self.trace, self.span, self.flags
        )
    }
}

/// A text that is no `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{value:?} is no traceparent: 00-<32 hexadecimal digits>-<16>-<2> in lower case, neither id zero, is needed"
)]
pub struct InvalidTraceparent {
    value: String,
}

impl FromStr for TraceContext {
    type Err = InvalidTraceparent;

    /// Reads a `traceparent`. Of a version above 00 the fields of version 00 are taken, as the standard asks.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| InvalidTraceparent {
            value: text.chars().take(MAX_SHOWN).collect(),
        })
    }
}

fn parse(text: &str) -> Option<TraceContext> {
    let mut fields = text.split('-');
    let version = hexadecimal(fields.next()?, 2)?;
    let trace = hexadecimal(fields.next()?, 32)?;
    let span = u64::try_from(hexadecimal(fields.next()?, 16)?).ok()?;
    let flags = u8::try_from(hexadecimal(fields.next()?, 2)?).ok()?;
    let may_go_on = version > 0 && version < 0xff;
    if version == 0xff || (fields.next().is_some() && !may_go_on) {
        return None;
    }
    TraceContext::new(trace, span, flags)
}

fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(is_lower_hex))
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

/// What connects `tracing` spans with those of other processes: a tracing system such as OpenTelemetry.
///
/// `tracing` itself gives spans no identity that another process could name. Without a tracer calls carry no context and
/// make no spans.
pub trait Tracer: fmt::Debug + Send + Sync + 'static {
    /// Who this span is; `None` if it is not traced.
    fn context(&self, span: &Span) -> Option<TraceContext>;

    /// Makes a span, which was not entered yet, go on a span of another process.
    fn follow(&self, span: &Span, parent: TraceContext);
}

/// The span of a call at its caller, within the caller's own span.
pub(super) fn call_span(method: &Method) -> Span {
    tracing::info_span!(
        "rpc.call",
        otel.kind = "client",
        rpc.service = method.gateway,
        rpc.method = method.name
    )
}

/// The span in which an endpoint handles a call.
pub(super) fn serve_span(tracer: &dyn Tracer, method: &Method, parent: TraceContext) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "rpc.serve",
        otel.kind = "server",
        rpc.service = method.gateway,
        rpc.method = method.name
    );
    tracer.follow(&span, parent);
    span
}

/// As much of a bad value as an error shows.
const MAX_SHOWN: usize = 80;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of the standard, section 3.2.
    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written_as_the_standard_says() {
        let context: TraceContext = EXAMPLE.parse().unwrap();
        assert_eq!(
            context.trace_id(),
            0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c
        );
        assert_eq!(context.span_id(), 0xb7ad_6b71_6920_3331);
        assert_eq!(context.flags(), 1);
        assert_eq!(context.to_string(), EXAMPLE);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = EXAMPLE.replacen("00-", "cc-", 1) + "-what-comes";
        let context: TraceContext = later.parse().unwrap();
        assert_eq!(context.to_string(), EXAMPLE);
    }

    #[test]
    fn what_the_standard_calls_invalid_is_refused_by_name() {
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            let error = bad.parse::<TraceContext>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_context_survives_its_text(trace in 1u128.., span in 1u64.., flags: u8) {
            let context = TraceContext::new(trace, span, flags).unwrap();
            prop_assert_eq!(context.to_string().parse(), Ok(context));
        }

        #[test]
        fn a_byte_that_is_changed_is_refused_or_read_as_it_stands(at in 0..EXAMPLE.len(), byte in b' '..=b'~') {
            let mut text = EXAMPLE.as_bytes().to_vec();
            text[at] = byte;
            let text = String::from_utf8(text).unwrap();
            let is_hex = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            let is_dash = matches!(at, 2 | 35 | 52);
            let may_be_read = if is_dash { byte == b'-' } else { is_hex };
            let is_version = at < 2;
            match text.parse::<TraceContext>() {
                Ok(context) => {
                    prop_assert!(may_be_read);
                    prop_assert_eq!(&context.to_string()[2..], &text[2..]);
                }
                Err(_) => prop_assert!(!may_be_read || is_version),
            }
        }
    }
}
