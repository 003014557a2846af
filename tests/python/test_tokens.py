"""Stores behind a login: headers, tokens that expire, netrc; and that no other server and no file gets the secrets."""

import base64
import json
import os
import subprocess
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import zarr

import mounting

from zarrfs import _options

SECRET = "hush-4711"
SECRET_HEADERS = ("Authorization", "Cookie", "X-Key")
OPTIONS = "use --bearer-token-file, --header or --netrc"
WANTS_LOGIN = f"the server refused access (401); the server wants a login: {OPTIONS}"
VALUES = list(range(12))


class Handler(BaseHTTPRequestHandler):
    """Serves a folder to requests that have the headers which the server wants."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        server.seen.append((self.command, self.path, self.headers))
        target = server.redirect(self.path) if server.redirect else None
        if target:
            return self.answer(302, b"", [("Location", target)])
        wanted = {} if self.path.endswith(server.public) else server.wanted
        if any(self.headers.get(name) != value for name, value in wanted.items()):
            return self.answer(*server.refusal)
        file = server.folder / self.path.lstrip("/")
        if self.command == "PROPFIND":
            return self.list(file)
        if not file.is_file():
            return self.answer(404, b"")
        content = server.content(file, self.headers)
        return self.answer(200, content, [("ETag", f'"{file.name}"')])

    do_HEAD = do_GET

    def do_PROPFIND(self):
        if self.server.dav:
            self.do_GET()
        else:
            self.answer(405, b"")

    def list(self, folder):
        """Sends a folder, and with depth 1 what is in it, as WebDAV lists it."""
        if not folder.exists():
            return self.answer(404, b"")
        depth = self.headers.get("Depth")
        entries = [folder, *(sorted(folder.iterdir()) if folder.is_dir() and depth == "1" else [])]
        text = "".join(self.entry(entry) for entry in entries)
        text = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{text}</D:multistatus>'
        return self.answer(207, text.encode(), [("Content-Type", "application/xml")])

    def entry(self, entry):
        path = "/" + str(entry.relative_to(self.server.folder))
        kind, length = "", f"<D:getcontentlength>{entry.stat().st_size}</D:getcontentlength>"
        if entry.is_dir():
            path, kind, length = path.replace("/.", "/").rstrip("/") + "/", "<D:collection/>", ""
        found = f"<D:resourcetype>{kind}</D:resourcetype>{length}"
        return (
            f"<D:response><D:href>{path}</D:href><D:propstat><D:prop>{found}</D:prop>"
            "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )

    def answer(self, status, body, headers=()):
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class TokenServer(ThreadingHTTPServer):
    """A web server for `folder` that wants the headers `wanted`, except for paths that end with one of `public`."""

    daemon_threads = True

    def __init__(self, folder, wanted=None, host="127.0.0.1"):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.wanted, self.host = folder, wanted or {}, host
        self.public = ()
        self.refusal = (401, b"no")
        self.redirect = None
        self.dav = False
        self.content = lambda file, headers: file.read_bytes()
        self.seen = []

    @property
    def url(self):
        return f"http://{self.host}:{self.server_address[1]}"

    def secrets(self):
        """Returns the headers with credentials that this server was sent."""
        return {name for _, _, headers in self.seen for name in SECRET_HEADERS if name in headers}


@pytest.fixture
def serve(tmp_path):
    """Starts servers with `serve(wanted, ...)` over a store of three chunks; ends them."""
    array = zarr.create_array(
        tmp_path / "served/s.zarr/a", shape=(12,), chunks=(4,), dtype="<i4", fill_value=7, compressors=None
    )
    array[:] = VALUES
    zarr.open_group(tmp_path / "served/s.zarr", mode="a", zarr_format=3)
    with ExitStack() as stack:

        def start(wanted=None, **options):
            server = TokenServer(tmp_path / "served", wanted, **options)
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return server

        yield start


@pytest.fixture
def token(tmp_path):
    """A file with a token."""
    path = tmp_path / "token"
    path.write_text("one\n")
    return path


def chunk(mount, number):
    """Returns the values of a chunk, or what cat says."""
    done = subprocess.run(["cat", mount.path / f"a/c/{number}"], capture_output=True, timeout=mounting.LIMIT)
    if done.returncode != 0:
        return done.stderr.decode()
    return np.frombuffer(done.stdout, "<i4").tolist()


def ls(*arguments, environment=None):
    return mounting.zarrfs("ls", *arguments, check=False, environment=environment)


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def with_netrc(tmp_path, text):
    path = tmp_path / "netrc"
    path.write_text(text)
    return {**os.environ, "NETRC": str(path)}


def test_a_server_that_wants_a_login_is_named_with_the_options(serve):
    server = serve({"Authorization": "Bearer one"})
    done = ls(f"{server.url}/s.zarr")
    assert (done.returncode, done.stdout) == (2, "")
    assert WANTS_LOGIN in done.stderr


def test_a_refused_token_is_named(serve, token):
    server = serve({"Authorization": "Bearer other"})
    said = ls(f"{server.url}/s.zarr", "--bearer-token-file", token).stderr
    assert "(401); the token of --bearer-token-file is not valid or has expired: put a new token into the file" in said
    said = ls(f"{server.url}/s.zarr", "--header", "X-Key: one").stderr
    assert "(401); the server does not accept the headers of --header: check them" in said
    said = ls(f"http://me:one@{server.url[7:]}/s.zarr").stderr
    assert "(401); the server does not accept the user and password of the URL: check them" in said
    server.refusal = (403, b"no")
    said = ls(f"{server.url}/s.zarr", "--bearer-token-file", token).stderr
    assert "(403); check the permissions of the token of --bearer-token-file" in said


def test_a_token_expires_while_mounted(serve, token, mounted):
    server = serve({"Authorization": "Bearer one"})
    mount = mounted(f"{server.url}/s.zarr", "--bearer-token-file", token)
    assert chunk(mount, 0) == VALUES[:4]
    token.write_text("two\n")
    server.wanted = {"Authorization": "Bearer two"}
    assert chunk(mount, 1) == VALUES[4:8]
    # It is refused, and the file has no other one: an error, and never the fill value.
    server.wanted = {"Authorization": "Bearer three"}
    assert "Permission denied" in chunk(mount, 2)
    assert "put a new token into the file" in (mount.path / ".zarrfs/errors").read_text()
    token.write_text("three\n")
    assert mounting.wait_until(lambda: chunk(mount, 2) == VALUES[8:])
    done = mounting.zarrfs("info", "--json", mount.path / ".zarrfs/files/a/a.npy", check=False)
    assert "three" not in done.stdout


def test_chunks_that_want_a_login_are_not_missing(serve, token, mounted):
    server = serve({"Authorization": "Bearer one"})
    server.public = ("zarr.json",)
    mount = mounted(f"{server.url}/s.zarr")
    assert "Permission denied" in chunk(mount, 0)
    values = subprocess.run(["cat", mount.files / "a/a.raw"], capture_output=True, timeout=mounting.LIMIT)
    assert values.returncode == 1
    assert WANTS_LOGIN in (mount.path / ".zarrfs/errors").read_text()


def test_another_server_gets_no_credentials(serve, token):
    other = serve()
    server = serve({"Authorization": "Bearer one", "X-Key": SECRET, "Cookie": SECRET})
    server.redirect = lambda path: other.url + path if path.startswith("/s.zarr/a/c/") else None
    options = ["--bearer-token-file", token, "--header", f"X-Key: {SECRET}", "--header", f"Cookie: {SECRET}"]
    with mounting.Mount(f"{server.url}/s.zarr", *options) as mount:
        assert np.load(mount.files / "a/a.npy").tolist() == VALUES
    assert server.secrets() == set(SECRET_HEADERS)
    assert any(path.startswith("/s.zarr/a/c/") for _, path, _ in other.seen)
    assert other.secrets() == set()


def test_the_user_of_a_url_is_not_sent_to_another_server(serve):
    other = serve()
    server = serve({"Authorization": basic("me", SECRET)})
    server.redirect = lambda path: other.url + path if path.startswith("/s.zarr/a/c/") else None
    with mounting.Mount(f"http://me:{SECRET}@{server.url[7:]}/s.zarr") as mount:
        assert np.load(mount.files / "a/a.npy").tolist() == VALUES
    assert other.seen
    assert other.secrets() == set()


def test_credentials_are_sent_again_after_a_redirect_on_the_same_server(serve, token):
    server = serve({"Authorization": "Bearer one"})
    server.redirect = lambda path: path.replace("/old/", "/", 1) if path.startswith("/old/") else None
    with mounting.Mount(f"{server.url}/old/s.zarr", "--bearer-token-file", token) as mount:
        assert np.load(mount.files / "a/a.npy").tolist() == VALUES


def test_netrc_gives_each_host_its_own_user(serve, tmp_path):
    other = serve({"Authorization": basic("you", "pw2")}, host="localhost")
    server = serve({"Authorization": basic("me", "pw1")})
    server.redirect = lambda path: other.url + path if path.startswith("/s.zarr/a/c/") else None
    hosts = "machine localhost login you password pw2\nmachine 127.0.0.1\n  login me password pw1\n"
    environment = with_netrc(tmp_path, hosts)
    with mounting.Mount(f"{server.url}/s.zarr", "--netrc", environment=environment) as mount:
        assert np.load(mount.files / "a/a.npy").tolist() == VALUES
    # Without the option, the file does not count.
    assert WANTS_LOGIN in ls(f"{server.url}/s.zarr", environment=environment).stderr
    # The entry for all hosts is not for one that the server chose.
    environment = with_netrc(tmp_path, hosts.replace("machine localhost", "default"))
    other.seen.clear()
    said = mounting.zarrfs("cat", f"{server.url}/s.zarr/a/c/0", "--netrc", check=False, environment=environment).stderr
    assert f"the server redirects to localhost, which wants a login (401); {OPTIONS}" in said
    assert other.secrets() == set()


@pytest.mark.parametrize("status", [200, 401])
def test_a_login_page_of_another_host_is_recognized(serve, status):
    page = serve({"Authorization": "never"}, host="localhost")
    page.refusal = (status, b"<!doctype html><title>Log in</title>", [("Content-Type", "text/html")])
    server = serve()
    server.redirect = lambda path: f"{page.url}/oauth/authorize?next={path}"
    said = ls(f"{server.url}/s.zarr").stderr
    if status == 401:
        assert f"the server redirects to localhost, which wants a login (401); {OPTIONS}" in said
    else:
        assert f"the server redirects to a web page at localhost, probably for a login; {OPTIONS}" in said


def test_webdav_lists_with_a_header(serve, mounted):
    server = serve({"X-Key": SECRET})
    server.dav = True
    mount = mounted(f"{server.url}/s.zarr", "--header", f"X-Key: {SECRET}")
    assert sorted(os.listdir(mount.path / "a/c")) == ["0", "1", "2"]
    assert np.load(mount.files / "a/a.npy").tolist() == VALUES
    assert "PROPFIND" in {method for method, _, _ in server.seen}


def shown_by_processes():
    """Returns the arguments and the environment of all processes but this one."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            for name in ("cmdline", "environ"):
                try:
                    found.append((folder / name).read_bytes().decode(errors="replace"))
                except OSError:
                    pass
    return "\n".join(found)


def test_secrets_are_not_shown(serve, token, tmp_path, mounted):
    token.write_text(f"{SECRET}-token")
    server = serve({"Authorization": f"Bearer {SECRET}-token", "X-Key": SECRET})
    log = tmp_path / "log"
    options = ["-vvv", "--log", log, "--bearer-token-file", token]
    mount = mounted(f"{server.url}/s.zarr", *options, "--header", f"X-Key: {SECRET}")
    assert np.load(mount.files / "a/a.npy").tolist() == VALUES
    processes = shown_by_processes()
    assert f"{server.url}/s.zarr" in processes
    facts = (mount.path / ".zarrfs/mount.json").read_text()
    assert json.loads(facts)["options"]["header"] == "x-key"
    # Failures are logged with their causes.
    (tmp_path / "served/s.zarr/a/c/1").unlink()
    server.wanted = {"X-Key": "other"}
    said = chunk(mount, 1)
    texts = {
        "processes": processes,
        "mount.json": facts,
        "list": mounting.zarrfs("list").stdout + mounting.zarrfs("list", "--json").stdout,
        "log": log.read_text(),
        "errors": (mount.path / ".zarrfs/errors").read_text(),
        "stats": (mount.path / ".zarrfs/stats.json").read_text(),
        "cat": said,
    }
    assert "refused access" in texts["errors"]
    for name, text in texts.items():
        assert SECRET not in text, name


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--header", SECRET], "--header: write a header as 'Name: value'"),
        (["--header", f"Host: {SECRET}"], "--header: the header host cannot be set: zarrfs sets it"),
        (["--header", f"If-Match: {SECRET}"], "the header if-match cannot be set"),
        (["--header", f"X-Key: {SECRET}\nHost: a"], "the value of the header x-key has control characters"),
        (["--header", "@/no/such"], "--header @/no/such: no such file: check the path"),
        (["--bearer-token-file", "/no/such"], "--bearer-token-file /no/such: no such file: check the path"),
        (["--bearer-token-file", "/dev/null"], "--bearer-token-file /dev/null: not a regular file"),
        (["--bearer-token-file", "EMPTY"], "the file is empty: put the token into it"),
        (
            ["--header", f"Authorization: {SECRET}", "--bearer-token-file", "TOKEN"],
            "--bearer-token-file: --header has the header Authorization already: use one of the two options",
        ),
        (["--netrc"], "/no/netrc: no such file: check the path"),
    ],
)
def test_options_are_checked_before_the_mount(serve, token, tmp_path, options, expected):
    server = serve()
    (tmp_path / "empty").write_text("\n")
    files = {"TOKEN": token, "EMPTY": tmp_path / "empty"}
    options = [files.get(option, option) for option in options]
    done = ls(f"{server.url}/s.zarr", *options, environment={**os.environ, "NETRC": "/no/netrc"})
    assert SECRET not in done.stdout + done.stderr
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not server.seen


def test_buckets_have_credentials_of_their_own(token):
    done = ls("s3://bucket/a.zarr", "--bearer-token-file", token)
    assert done.returncode == 2
    assert "--bearer-token-file: only for http:// and https:// URLs; a store at s3:// has" in done.stderr


def test_options_of_mount_8(serve, tmp_path, token, mounted):
    headers = tmp_path / "headers"
    headers.write_text(f"# mine\nX-Key: {SECRET}\n")
    server = serve({"Authorization": "Bearer one", "X-Key": SECRET})
    mount = mounted(f"{server.url}/s.zarr", "-o", f"header=@{headers},bearer_token_file={token}")
    assert chunk(mount, 0) == VALUES[:4]
    server.wanted = {"Authorization": basic("me", "pw")}
    environment = with_netrc(tmp_path, "machine 127.0.0.1 login me password pw")
    with mounting.Mount(f"{server.url}/s.zarr", "-o", "netrc", environment=environment) as mount:
        assert chunk(mount, 1) == VALUES[4:8]


def test_options_of_the_module():
    words = _options.words({"header": {"X-Key": "a b"}, "bearer_token_file": Path("/t"), "netrc": True})
    assert words == ["--header=X-Key: a b", "--bearer-token-file=/t", "--netrc"]


def test_the_disk_cache_is_not_shared_by_users(serve, tmp_path):
    server = serve()
    server.content = lambda file, headers: (
        file.read_bytes() if file.name.endswith(".json") else headers["X-User"].encode() * 16
    )
    cache = ["--cache-dir", tmp_path / "cache"]
    for user in "abab":
        with mounting.Mount(f"{server.url}/s.zarr", *cache, "--header", f"X-User: {user}") as mount:
            assert (mount.path / "a/c/0").read_bytes() == user.encode() * 16
    users = [headers["X-User"] for method, path, headers in server.seen if (method, path) == ("GET", "/s.zarr/a/c/0")]
    assert users == ["a", "b"]
