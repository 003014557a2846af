//! Parses the header `Retry-After`, the pause that a busy server asks for.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

/// Returns the pause that the server asks for (RFC 9110, section 10.2.3: seconds or a date), or `None`.
pub(crate) fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_busy = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    let value = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    let pause = pause(value.trim(), SystemTime::now());
    pause.filter(|_| is_busy.contains(&status))
}

fn pause(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        for (value, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("Sun, 13 Sep 2020 12:27:00 GMT", Some(20)),
            ("Sun, 13 Sep 2020 12:26:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(
                pause(value, now),
                expected.map(Duration::from_secs),
                "{value}"
            );
        }
    }

    #[test]
    fn only_busy_servers_are_waited_for() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(StatusCode::SERVICE_UNAVAILABLE, &headers), None);
        headers.insert("retry-after", "7".parse().unwrap());
        let seven = Some(Duration::from_secs(7));
        assert_eq!(
            retry_after(StatusCode::SERVICE_UNAVAILABLE, &headers),
            seven
        );
        assert_eq!(retry_after(StatusCode::TOO_MANY_REQUESTS, &headers), seven);
        assert_eq!(retry_after(StatusCode::OK, &headers), None);
    }
}
