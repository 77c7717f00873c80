//! The unary call, written by hand in the place of generated code: the build needs no `protoc`.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use bytes::Bytes;
use tonic::{
    Request, Response, Status,
    body::Body,
    client,
    codegen::{BoxFuture, Service, StdError, http, http::uri::PathAndQuery},
    server::{self, NamedService, UnaryService},
    transport::Channel,
};

use super::codec::BytesCodec;

/// Answers with what it gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "thalweg.bench.Echo";
}

impl<B> Service<http::Request<B>> for Echo
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        // The service has one method: whatever is called, it is meant.
        let answer = async move { Ok(server::Grpc::new(BytesCodec).unary(Self, request).await) };
        Box::pin(answer)
    }
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

/// What generated clients hold.
#[derive(Debug, Clone)]
pub(super) struct EchoClient(client::Grpc<Channel>);

impl EchoClient {
    pub(super) fn new(channel: Channel) -> Self {
        Self(client::Grpc::new(channel))
    }

    pub(super) async fn echo(&mut self, payload: Bytes) -> Result<Bytes, Status> {
        self.0
            .ready()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let request = Request::new(payload);
        let answer = self.0.unary(request, METHOD.clone(), BytesCodec).await?;
        Ok(answer.into_inner())
    }
}

static METHOD: std::sync::LazyLock<PathAndQuery> =
    std::sync::LazyLock::new(|| PathAndQuery::from_static("/thalweg.bench.Echo/Echo"));
