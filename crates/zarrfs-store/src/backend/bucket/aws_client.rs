//! Adapts the bucket's HTTP client for `aws-config`, which requests credentials through it.

use aws_smithy_runtime_api::client::http::{
    HttpClient as AwsHttpClient, HttpConnector as AwsHttpConnector, HttpConnectorFuture,
    HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use futures_util::TryStreamExt;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpRequest};

use super::metadata_service;
use crate::backend::remote::connector::Connector;

/// Maximum length of a response, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// An HTTP client for the AWS library.
#[derive(Clone, Debug)]
pub(super) struct AwsClient(HttpClient);

impl AwsClient {
    pub(super) fn new(
        connector: &Connector,
        options: &ClientOptions,
    ) -> object_store::Result<AwsClient> {
        connector.connect(options).map(AwsClient)
    }

    async fn send(
        self,
        request: orchestrator::HttpRequest,
    ) -> Result<orchestrator::HttpResponse, ConnectorError> {
        let request = request.try_into_http1x();
        let (head, body) = request
            .map_err(|error| ConnectorError::user(error.into()))?
            .into_parts();
        let body = body.bytes().unwrap_or_default().to_vec();
        let request = HttpRequest::from_parts(head, body.into());
        let response = metadata_service::execute(&self.0, request).await;
        let response = response.map_err(|error| ConnectorError::io(error.into()))?;
        let (head, body) = response.into_parts();
        let mut pieces = body.bytes_stream();
        let mut body = Vec::new();
        while let Some(piece) = pieces
            .try_next()
            .await
            .map_err(|error| ConnectorError::io(error.into()))?
        {
            if body.len() + piece.len() > MAX_ANSWER {
                let why = format!("the answer is longer than {MAX_ANSWER} bytes");
                return Err(ConnectorError::other(why.into(), None));
            }
            body.extend_from_slice(&piece);
        }
        let response = http::Response::from_parts(head, body.into());
        response
            .try_into()
            .map_err(|error: aws_smithy_runtime_api::http::HttpError| {
                ConnectorError::other(error.into(), None)
            })
    }
}

impl AwsHttpConnector for AwsClient {
    fn call(&self, request: orchestrator::HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().send(request))
    }
}

impl AwsHttpClient for AwsClient {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
