"""Requests to servers of this machine, past any proxy that the environment names."""

import http.client
import urllib.error
import urllib.request

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def request(url, data=None, method=None, headers=()):
    """Returns the status of the answer, whatever it is, and its body; OSError if there is none within 5 s."""
    asked = urllib.request.Request(url, data, dict(headers), method=method)
    try:
        with OPENER.open(asked, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read()


def answers(url, below=500):
    """Says whether a server answers at `url` with a status below the given one, be it that it refuses."""
    try:
        return request(url)[0] < below
    except (OSError, http.client.HTTPException):
        return False


def expect_success(what, answer):
    """Raises RuntimeError, which names `what`, unless an answer of `request` has a status from 200 to 299."""
    found, body = answer
    if not 200 <= found < 300:
        raise RuntimeError(f"{what}: {found} {body[:500]!r}")
