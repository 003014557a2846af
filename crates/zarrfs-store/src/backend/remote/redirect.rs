//! Follows redirects, with the credentials of each server and no others.
//!
//! Credentials of a request are dropped when it leaves the server that they are for: scheme, host and port.
//!
//! A server on the internet must not choose requests inside the network, so a redirect from a public host to this
//! machine or a private network is refused. A private host may redirect within its network. A name is judged by its
//! addresses at the time of the redirect. The client resolves it again, so a change of the addresses in between goes
//! unnoticed.

use std::io;
use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs};
use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, LOCATION,
    PROXY_AUTHORIZATION, TRANSFER_ENCODING,
};
use http::{Method, StatusCode};
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use tokio::runtime::{Handle, RuntimeFlavor};
use url::Url;

use super::login::SentLogin;
use super::login::origin_login::{Hop, OriginLogin};
use crate::backend::opaque_debug;

/// The URL of a response after all redirects, stored in the response's extensions.
#[derive(Clone)]
pub(crate) struct FinalUrl(pub(crate) Url);

/// A client that follows redirects and adds credentials. It stores the final URL in the extensions of each response,
/// and there also records whether the credentials for the store were sent.
pub(super) struct RedirectingClient {
    below: HttpClient,
    login: Option<Arc<OriginLogin>>,
}

opaque_debug!(RedirectingClient);

impl RedirectingClient {
    /// Wraps an HTTP client that does not follow redirects itself.
    pub(super) fn new(below: HttpClient, login: Option<Arc<OriginLogin>>) -> RedirectingClient {
        RedirectingClient { below, login }
    }

    /// Sends a request without following redirects. If a token has expired, renews it and repeats the request once.
    async fn send(&self, request: HttpRequest, hop: &Hop<'_>) -> Result<HttpResponse, HttpError> {
        let mut response = match &self.login {
            Some(login) => self.send_signed(login, request, hop).await?,
            None => self.below.execute(request).await?,
        };
        let url = hop.url.clone();
        response.extensions_mut().insert(FinalUrl(url));
        Ok(response)
    }

    async fn send_signed(
        &self,
        login: &OriginLogin,
        request: HttpRequest,
        hop: &Hop<'_>,
    ) -> Result<HttpResponse, HttpError> {
        let mut signed = request;
        let sent = login.sign(signed.headers_mut(), hop).await;
        let again = (sent == SentLogin::Token).then(|| signed.clone());
        let mut response = self.below.execute(signed).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let Some(mut again) = again
            && let Some(token) = login.renewed_token(again.headers()).await
        {
            again.headers_mut().insert(AUTHORIZATION, token);
            response = self.below.execute(again).await?;
        }
        response.extensions_mut().insert(sent);
        Ok(response)
    }
}

#[async_trait::async_trait]
impl HttpService for RedirectingClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let first = Url::parse(&request.uri().to_string()).map_err(|error| failed(&error))?;
        let (mut url, mut request) = (first.clone(), request);
        let mut was_encrypted = false;
        // At most 10 redirects are followed after the first request.
        for _ in 0..=10 {
            was_encrypted |= url.scheme() == "https";
            let hop = Hop {
                url: &url,
                is_downgraded: was_encrypted && url.scheme() != "https",
            };
            let again = request.clone();
            let response = self.send(request, &hop).await?;
            let Some(target) = target(&response, &url) else {
                return Ok(response);
            };
            if let Some(why) = refusal(&first, &target, resolves_inside) {
                return Err(failed(&why));
            }
            let Some(next) = redirected(again, response.status(), &url, &target) else {
                return Ok(response);
            };
            (url, request) = (target, next);
        }
        Err(failed(&"too many redirects"))
    }
}

/// Returns the error of a request whose redirect is refused.
fn failed(why: &dyn std::fmt::Display) -> HttpError {
    let why = io::Error::new(io::ErrorKind::PermissionDenied, why.to_string());
    HttpError::new(HttpErrorKind::Unknown, why)
}

/// Returns the URL that a response redirects to, or `None` if the response is not a redirect.
fn target(response: &HttpResponse, url: &Url) -> Option<Url> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| is_redirect)?;
    let location = std::str::from_utf8(location.as_bytes()).ok()?;
    let mut target = url.join(location).ok()?;
    // The server must not choose the user and password of the next request.
    target.set_username("").ok()?;
    target.set_password(None).ok()?;
    target.set_fragment(None);
    matches!(target.scheme(), "http" | "https").then_some(target)
}

/// Returns the request for the target of a redirect (RFC 9110, section 15.4), or `None` if the URL cannot be requested.
fn redirected(
    mut request: HttpRequest,
    status: StatusCode,
    from: &Url,
    target: &Url,
) -> Option<HttpRequest> {
    let becomes_get = match status {
        StatusCode::SEE_OTHER => request.method() != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => request.method() == Method::POST,
        _ => false,
    };
    if becomes_get {
        *request.method_mut() = Method::GET;
        *request.body_mut() = HttpRequestBody::empty();
        for name in [
            CONTENT_ENCODING,
            CONTENT_LENGTH,
            CONTENT_TYPE,
            TRANSFER_ENCODING,
        ] {
            request.headers_mut().remove(name);
        }
    }
    if target.origin() != from.origin() {
        // Headers with credentials are only for the server that the request was made for.
        for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
            request.headers_mut().remove(name);
        }
    }
    *request.uri_mut() = target.as_str().parse().ok()?;
    Some(request)
}

/// Returns why a redirect is refused (it leads from a public host into a private network), or `None`. `resolves_inside`
/// tells whether a host name has a private address.
fn refusal(first: &Url, target: &Url, resolves_inside: impl Fn(&str) -> bool) -> Option<String> {
    let (from, to) = (first.host_str()?, target.host_str()?);
    let is_private = |host: &str| is_inside(host) || resolves_inside(host);
    if from == to || !is_private(to) || is_private(from) {
        return None;
    }
    Some(format!(
        "the server redirects to {to}, a private address, which zarrfs does not follow"
    ))
}

/// Whether a host is given as an address of this machine or of a private network.
fn is_inside(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => is_private(address),
        Err(_) => {
            let name = bare.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

/// Whether a host name resolves to a private address. If a name has no address, the client will report that.
fn resolves_inside(host: &str) -> bool {
    let find = || {
        let addresses = (host, 0).to_socket_addrs();
        addresses.is_ok_and(|mut all| all.any(|address| is_private(address.ip())))
    };
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(find),
        Ok(_) | Err(_) => find(),
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            // 100.64.0.0/10 is the shared address space of providers (RFC 6598).
            let is_shared = first == 100 && (64..128).contains(&second);
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || first == 0 || is_shared
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_private(IpAddr::V4(v4)),
            None => is_private_v6(v6),
        },
    }
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let first = address.segments()[0];
    // Unique local and link-local addresses (RFC 4193, RFC 4291).
    let is_local = first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80;
    address.is_loopback() || address.is_unspecified() || is_local
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::runtime::Builder;

    use super::*;
    use crate::backend::remote::errors;
    use crate::backend::remote::login::Login;
    use crate::backend::remote::login::origin_login::UrlUser;

    fn redirected(from: &str, to: &str) -> Option<String> {
        let resolves_inside = |host: &str| host.ends_with(".inside.example");
        refusal(
            &from.parse().unwrap(),
            &to.parse().unwrap(),
            resolves_inside,
        )
    }

    /// A test server that chooses its response by the URL of the request, and records all requests.
    #[derive(Clone)]
    struct Server {
        answer: fn(&HttpRequest) -> (u16, &'static str),
        requests: Arc<Mutex<Vec<HttpRequest>>>,
    }

    opaque_debug!(Server);

    #[async_trait::async_trait]
    impl HttpService for Server {
        async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
            let (status, location) = (self.answer)(&request);
            self.requests.lock().push(request);
            let response = http::Response::builder().status(status);
            let response = response.header(LOCATION, location);
            Ok(response.body(String::new().into()).unwrap())
        }
    }

    impl Server {
        fn new(answer: fn(&HttpRequest) -> (u16, &'static str)) -> Server {
            Server {
                answer,
                requests: Arc::default(),
            }
        }

        fn send(
            &self,
            login: Option<Arc<OriginLogin>>,
            request: HttpRequest,
        ) -> Result<HttpResponse, HttpError> {
            let client = RedirectingClient::new(HttpClient::new(self.clone()), login);
            let mut runtime = Builder::new_multi_thread();
            let runtime = runtime.worker_threads(1).build().unwrap();
            runtime.block_on(client.call(request))
        }

        fn seen(&self) -> Vec<String> {
            let requests = self.requests.lock();
            let lines = requests.iter().map(|request| {
                let authorization = request.headers().get(AUTHORIZATION);
                let authorization = authorization.map_or("", |value| value.to_str().unwrap());
                let length = request.body().content_length();
                let (method, uri) = (request.method(), request.uri());
                format!("{method} {uri} {authorization} {length}")
            });
            lines.collect()
        }
    }

    fn request(method: Method, url: &str, body: &str) -> HttpRequest {
        http::Request::builder()
            .method(method)
            .uri(url)
            .header(AUTHORIZATION, "mine")
            .header(CONTENT_TYPE, "text/plain")
            .body(body.to_string().into())
            .unwrap()
    }

    #[test]
    fn credentials_stay_on_their_server() {
        let server = Server::new(|request| match request.uri().path() {
            "/a" => (302, "/b?x"),
            "/b" => (307, "https://me:pw@other.example/c#d"),
            "/c" => (301, "https://data.example/e"),
            _ => (200, ""),
        });
        let response = server.send(None, request(Method::GET, "https://data.example/a", ""));
        let response = response.unwrap();
        let FinalUrl(url) = response.extensions().get().unwrap();
        assert_eq!(url.as_str(), "https://data.example/e");
        let expected = [
            "GET https://data.example/a mine 0",
            "GET https://data.example/b?x mine 0",
            "GET https://other.example/c  0",
            "GET https://data.example/e  0",
        ];
        assert_eq!(server.seen(), expected);
    }

    #[test]
    fn a_303_redirect_is_followed_with_get() {
        let server = Server::new(|request| match request.uri().path() {
            "/a" => (307, "/b"),
            "/b" => (303, "/c"),
            _ => (200, ""),
        });
        let put = request(Method::PUT, "http://10.0.0.1/a", "body");
        server.send(None, put).unwrap();
        let expected = [
            "PUT http://10.0.0.1/a mine 4",
            "PUT http://10.0.0.1/b mine 4",
            "GET http://10.0.0.1/c mine 0",
        ];
        assert_eq!(server.seen(), expected);
        assert!(
            !server.requests.lock()[2]
                .headers()
                .contains_key(CONTENT_TYPE)
        );
    }

    #[test]
    fn redirects_are_limited_in_number_and_scheme() {
        let server = Server::new(|_| (302, "/"));
        let error = server.send(None, request(Method::GET, "http://10.0.0.1/", ""));
        assert!(errors::innermost(&error.unwrap_err()).contains("too many redirects"));
        assert_eq!(server.seen().len(), 11);
        for location in ["", "ftp://10.0.0.1/", "http://[", "data:x"] {
            let server = match location {
                "" => Server::new(|_| (304, "/b")),
                "http://[" => Server::new(|_| (302, "http://[")),
                "data:x" => Server::new(|_| (302, "data:x")),
                _ => Server::new(|_| (302, "ftp://10.0.0.1/")),
            };
            let sent = server.send(None, request(Method::GET, "http://10.0.0.1/", ""));
            assert!(sent.unwrap().status().as_u16() >= 302, "{location}");
            assert_eq!(server.seen().len(), 1, "{location}");
        }
    }

    #[test]
    fn a_refused_token_is_renewed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "one").unwrap();
        let mut login = Login::default();
        login.set_bearer_token_file(&path).unwrap();
        let origin = Url::parse("http://10.0.0.1/").unwrap().origin();
        let login = Arc::new(OriginLogin::new(&login, origin, UrlUser::default()));
        let server = Server::new(|request| {
            let is_valid = request.headers()[AUTHORIZATION] == "Bearer two";
            (if is_valid { 200 } else { 401 }, "")
        });
        let send = || {
            let mut put = request(Method::PUT, "http://10.0.0.1/", "body");
            put.headers_mut().remove(AUTHORIZATION);
            let sent = server.send(Some(login.clone()), put).unwrap();
            assert_eq!(sent.extensions().get(), Some(&SentLogin::Token));
            (sent.status().as_u16(), server.seen())
        };
        let (status, seen) = send();
        assert_eq!((status, seen.len()), (401, 1));
        std::fs::write(&path, "two").unwrap();
        let (status, seen) = send();
        let expected = [
            "PUT http://10.0.0.1/ Bearer one 4",
            "PUT http://10.0.0.1/ Bearer one 4",
            "PUT http://10.0.0.1/ Bearer two 4",
        ];
        assert_eq!(
            (status, seen.as_slice()),
            (200, expected.map(str::to_string).as_slice())
        );
    }

    #[test]
    fn a_redirect_to_a_private_host_name_is_refused() {
        let inside = "http://files.inside.example/a";
        for public in ["https://93.184.216.34/a", "https://data.example/a"] {
            let why = redirected(public, inside).unwrap();
            assert!(
                why.contains("files.inside.example, a private address"),
                "{why}"
            );
            assert_eq!(redirected(inside, public), None);
        }
        assert_eq!(redirected("http://other.inside.example/a", inside), None);
        assert!(resolves_inside("localhost"));
        assert!(!resolves_inside("name-without-an-address.invalid"));
    }

    #[test]
    fn a_redirect_from_public_to_private_address_is_refused() {
        let public = "https://93.184.216.34/a";
        for inside in [
            "http://127.0.0.1:8080/a",
            "http://localhost/a",
            "http://10.1.2.3/a",
            "http://192.168.0.1/a",
            "http://169.254.169.254/latest",
            "http://[::1]/a",
            "http://[fd00::1]/a",
            "http://[::ffff:127.0.0.1]/a",
        ] {
            let why = redirected(public, inside).unwrap();
            assert!(why.contains("a private address"), "{why}");
            assert_eq!(redirected("http://127.0.0.1/a", inside), None);
            assert_eq!(redirected("http://localhost/a", inside), None);
        }
        for outside in [
            "https://93.184.216.35/a",
            "https://[2606:2800::1]/a",
            public,
        ] {
            assert_eq!(redirected(public, outside), None);
            assert_eq!(redirected("http://10.0.0.1/a", outside), None);
        }
    }
}
