//! Arrow Flight's `do_get`: record batches without an end.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt8Array};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
    encode::FlightDataEncoderBuilder, error::FlightError, flight_service_server::FlightService,
};
use arrow_schema::{DataType, Field, Schema};
use futures_util::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use tonic::{Request, Response, Status, Streaming, async_trait};

/// Serves one batch again and again, whatever the ticket says. Flight writes each batch anew.
#[derive(Debug, Clone)]
pub(super) struct Batches(RecordBatch);

impl Batches {
    pub(super) fn new() -> Self {
        let schema = Schema::new(vec![Field::new("bytes", DataType::UInt8, false)]);
        let bytes = UInt8Array::from(vec![FILLING; BATCH_BYTES]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(bytes)]);
        Self(batch.expect("the column is that of the schema"))
    }
}

/// Of a batch, and as many rows: the larger, the less Flight has to do for each.
pub(super) const BATCH_BYTES: usize = 256 * 1024;

/// Any byte does; nothing on the way compresses.
const FILLING: u8 = 0xa5;

type Answers<T> = BoxStream<'static, Result<T, Status>>;
type Answer<T> = Result<Response<T>, Status>;

fn not_here<T>() -> Answer<T> {
    Err(Status::unimplemented("only do_get is measured"))
}

#[async_trait]
impl FlightService for Batches {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    async fn do_get(&self, _: Request<Ticket>) -> Answer<Self::DoGetStream> {
        let batches = stream::repeat(self.0.clone()).map(Ok::<_, FlightError>);
        let encoded = FlightDataEncoderBuilder::new()
            .with_schema(self.0.schema())
            .build(batches);
        Ok(Response::new(encoded.map_err(Status::from).boxed()))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        not_here()
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        not_here()
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        not_here()
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        not_here()
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        not_here()
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        not_here()
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        not_here()
    }

    async fn do_action(&self, _: Request<Action>) -> Answer<Self::DoActionStream> {
        not_here()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        not_here()
    }
}
