"""Stores on servers: each kind reads as from disk, and a mount that cannot be is told at once, without secrets."""

import contextlib
import functools
import http.server
import json
import os
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

import layout
import mounting
import needs
import places
from servers import seaweedfs
from servers.ports import free_port

# Within this a mount that cannot be has to be refused: no waiting for servers that do not exist.
REFUSED_WITHIN = 20
SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture(params=places.PLACES)
def place(request):
    return places.PLACES[request.param]()


@pytest.fixture
def on_s3(sample):
    """Returns a place of SeaweedFS with the sample in it."""
    place = places.S3()
    place.upload(sample)
    return place


def arrays(store):
    """Returns {path: content} of the arrays of a local store."""
    found = {}
    for path, node in zarr.open_group(store, mode="r").members(max_depth=None):
        if isinstance(node, zarr.Array):
            found[path] = np.asarray(node[...])
    return found


def test_every_kind_of_server_reads_like_a_local_store(place, sample):
    place.upload(sample)
    with place.mount() as mount:
        for path, content in arrays(sample).items():
            npy = np.load(layout.decoded(mount.files, mount.store, path, "npy"))
            assert (npy.dtype, npy.tobytes()) == (content.dtype, content.tobytes()), path
            assert zarr.open_array(mount.path / path, mode="r")[...].tobytes() == content.tobytes()
        if place.lists:
            diff = subprocess.run(["diff", "-r", sample, mount.path], capture_output=True, text=True)
            assert (diff.returncode, diff.stdout) == (0, ""), diff.stderr


@pytest.mark.parametrize("name", ["s3", "azure", "gcs", "webdav", "nginx", "apache", "caddy", "http.server"])
def test_an_archive_on_a_server(name, sample, tmp_path):
    folder = tmp_path / "archives"
    folder.mkdir()
    subprocess.run(["zip", "-q", "-r", folder / "made.zarr.zip", "."], cwd=sample, check=True)
    place = places.PLACES[name]()
    place.upload(folder)
    with place.mount(under="made.zarr.zip") as mount:
        for path, content in arrays(sample).items():
            npy = np.load(layout.decoded(mount.files, mount.store, path, "npy"))
            assert npy.tobytes() == content.tobytes(), path
        diff = subprocess.run(["diff", "-r", sample, mount.path], capture_output=True, text=True)
        assert (diff.returncode, diff.stdout) == (0, ""), diff.stderr


def refusal(store, *options, keys=(), folder):
    """Returns the one line with which a mount is refused."""
    environment = places.environment(dict(keys))
    command = ["mount", *options, store, folder]
    done = mounting.zarrfs(*command, check=False, environment=environment, limit=REFUSED_WITHIN)
    assert (done.returncode, done.stdout) == (2, ""), done
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_failed_mounts_of_s3_name_their_cause(on_s3, tmp_path):
    endpoint, right = on_s3.options, places.S3_KEYS
    wrong_secret = {**right, "AWS_SECRET_ACCESS_KEY": "wrong"}
    wrong_key = {**right, "AWS_ACCESS_KEY_ID": "nobody"}
    for store, keys, named in [
        ("s3://nosuch/made.zarr", right, "nosuch"),
        (f"{on_s3.url}/absent.zarr", right, "absent.zarr"),
        (on_s3.url, wrong_secret, seaweedfs.BUCKET),
        (on_s3.url, wrong_key, seaweedfs.BUCKET),
        (on_s3.url, {}, seaweedfs.BUCKET),
    ]:
        line = refusal(store, *endpoint, keys=keys, folder=tmp_path)
        assert named in line, line


def test_without_credentials_a_public_bucket_is_read(sample):
    place = places.S3(anybody=True)
    place.upload(sample)
    place.options.remove("--anon")
    with place.mount() as mount:
        assert sorted(os.listdir(mount.path)) == sorted(os.listdir(sample))


def test_an_unused_endpoint_is_named(tmp_path):
    nowhere = f"http://127.0.0.1:{free_port()}"
    line = refusal("s3://test/a", "--endpoint", nowhere, "--anon", folder=tmp_path)
    assert "127.0.0.1" in line, line
    assert "127.0.0.1" in refusal(f"{nowhere}/a.zarr", folder=tmp_path)


def test_a_missing_store_is_named(tmp_path):
    url = needs.address("ZARRFS_TEST_NGINX")
    assert "absent.zarr" in refusal(f"{url}/absent.zarr", folder=tmp_path)


def test_an_unknown_storage_option_is_refused_with_a_suggestion(tmp_path):
    option = ["--anon", "--option", "virtual_hosted_style_reqest=true"]
    line = refusal("s3://test/a", *option, folder=tmp_path)
    assert "virtual_hosted_style_request" in line, line


def test_secrets_of_options_are_not_shown(on_s3, tmp_path):
    log = tmp_path / "log"
    options = [f"access_key_id={seaweedfs.ACCESS_KEY}", f"secret_access_key={seaweedfs.SECRET_KEY}"]
    options = [word for option in options for word in ("--option", option)]
    on_s3.keys = {}
    secret = seaweedfs.SECRET_KEY
    with on_s3.mount("--log", log, *options) as mount:
        (mount.path / "zarr.json").read_bytes()
        with pytest.raises(FileNotFoundError):
            (mount.path / "absent").read_bytes()
        assert secret not in (mount.path / ".zarrfs/mount.json").read_text()
        assert secret not in command_lines()
    assert secret not in log.read_text()
    keys = ["--option", "access_key_id=nobody", "--option", f"secret_access_key={SECRET}"]
    assert SECRET not in refusal(on_s3.url, *on_s3.options, *keys, folder=tmp_path)


def test_the_password_of_a_url_is_not_shown(sample):
    place = places.PLACES["nginx"]()
    place.upload(sample)
    place.url = place.url.replace("://", f"://somebody:{SECRET}@") + f"?token={SECRET}"
    with place.mount() as mount:
        assert SECRET not in (mount.path / ".zarrfs/mount.json").read_text()
        assert SECRET not in command_lines()
        assert SECRET not in Path("/proc/self/mountinfo").read_text()


def command_lines():
    """Returns what ps shows of every process but this one and its parents."""
    texts = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if b"pytest" not in text:
            texts.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(texts)


def test_mount_json_says_that_the_store_does_not_list(sample):
    place = places.PLACES["nginx"]()
    place.upload(sample)
    with place.mount() as mount:
        told = json.loads((mount.path / ".zarrfs/mount.json").read_text())
        assert told["listings"].startswith("the server does not list names: "), told
    place = places.PLACES["nginx-autoindex"]()
    place.upload(sample)
    with place.mount() as mount:
        assert "listings" not in json.loads((mount.path / ".zarrfs/mount.json").read_text())


def certified(folder):
    """Makes a certificate of an authority that nobody knows, and one for this machine that it has signed."""
    needs.require("openssl", shutil.which("openssl") is not None)

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=nobody known")
    openssl("req", *key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
    openssl("x509", "-req", "-in", "request.pem", *signed, "-out", "certificate.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


def signing_itself(folder, *, dates=()):
    """Makes a certificate for this machine as `openssl req -x509` does: one of an authority that signs itself."""
    needs.require("openssl", shutil.which("openssl") is not None)

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem"]
    if not dates:
        openssl("req", "-x509", *key, *names, "-out", "certificate.pem")
    else:
        openssl("req", *key, "-subj", "/CN=localhost", "-out", "request.pem")
        (folder / "index").touch()
        (folder / "settings").write_text(
            "[ca]\ndefault_ca=own\n[own]\ndatabase=index\nrand_serial=yes\nnew_certs_dir=.\ndefault_md=sha256\n"
            "policy=any\nx509_extensions=more\n[any]\ncommonName=supplied\n"
            "[more]\nbasicConstraints=critical,CA:TRUE\nsubjectAltName=DNS:localhost\n"
        )
        given = ["-startdate", dates[0], "-enddate", dates[1], "-in", "request.pem", "-out", "certificate.pem"]
        openssl("ca", "-config", "settings", "-selfsign", "-batch", "-notext", "-keyfile", "key.pem", *given)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context, folder / "certificate.pem"


@contextlib.contextmanager
def served_by_tls(sample, context):
    """Serves the sample by https; gives the port."""
    handler = functools.partial(QuietHandler, directory=sample)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def over_tls(sample, tmp_path):
    """Serves the sample by https; gives its URL and the file of the authority's certificate."""
    with served_by_tls(sample, certified(tmp_path)) as port:
        yield f"https://localhost:{port}", tmp_path / "ca.pem"


def test_a_certificate_of_a_private_authority_can_be_trusted(over_tls, sample, tmp_path):
    url, authority = over_tls
    (tmp_path / "mountpoint").mkdir()
    line = refusal(url, folder=tmp_path / "mountpoint")
    why = "the server's certificate is not trusted (UnknownIssuer): set SSL_CERT_FILE to a file with the certificate of its authority"
    assert line == f"zarrfs: {url}: {why}"
    environment = places.environment({"SSL_CERT_FILE": str(authority)})
    with mounting.Mount(url, environment=environment) as mount:
        for path, content in arrays(sample).items():
            npy = np.load(layout.decoded(mount.files, mount.store, path, "npy"))
            assert npy.tobytes() == content.tobytes(), path


def test_missing_trusted_certificates_are_an_error_with_advice(over_tls, sample):
    needs.require("unshare, as root", os.geteuid() == 0 and shutil.which("unshare") is not None)
    url, authority = over_tls
    why = (
        "no trusted certificates found: install the package ca-certificates, or set SSL_CERT_FILE to a file with "
        "certificates"
    )

    def tree(*arguments, keys=()):
        """Asks where nothing is in the folders of certificates."""
        hidden = 'for d in /etc/ssl /etc/pki /usr/local/share; do [ ! -d $d ] || mount -t tmpfs tmpfs $d; done; exec "$@"'
        return subprocess.run(
            ["unshare", "--mount", "sh", "-euc", hidden, "sh", mounting.program(), "tree", *arguments],
            capture_output=True,
            text=True,
            env=places.environment(dict(keys)),
            timeout=REFUSED_WITHIN,
        )

    handler = functools.partial(QuietHandler, directory=sample)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            done = tree(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    assert (done.returncode, done.stderr) == (0, ""), done
    done = tree(url)
    assert (done.returncode, done.stderr) == (2, f"zarrfs: {url}: {why}\n"), done
    for bucket in "s3://bucket/a.zarr", "gs://bucket/a.zarr", "az://bucket/a.zarr":
        account = ["--option", "account_name=account"] if bucket.startswith("az") else []
        done = tree("--anon", "--endpoint", url, *account, bucket)
        assert (done.returncode, done.stderr) == (2, f"zarrfs: {bucket}: {url}: {why}\n"), done
    done = tree(url, keys={"SSL_CERT_FILE": str(authority)})
    assert (done.returncode, done.stderr) == (0, ""), done


def test_a_self_signed_certificate_can_be_trusted(sample, tmp_path):
    for name in "own", "other", "mountpoint":
        (tmp_path / name).mkdir()
    context, own = signing_itself(tmp_path / "own")
    _, other = signing_itself(tmp_path / "other")
    why = (
        "the server's certificate is not trusted (CaUsedAsEndEntity): set SSL_CERT_FILE to a file with exactly this "
        "self-signed certificate"
    )
    with served_by_tls(sample, context) as port:
        url, other_name = f"https://localhost:{port}", f"https://127.0.0.1:{port}"

        def refused(url, trusted):
            keys = {"SSL_CERT_FILE": str(trusted)} if trusted else {}
            return refusal(url, keys=keys, folder=tmp_path / "mountpoint")

        assert refused(url, None) == refused(url, other) == f"zarrfs: {url}: {why}"
        assert "the server's certificate is not trusted (certificate not valid for name" in refused(other_name, own)
        environment = places.environment({"SSL_CERT_FILE": str(own)})
        with mounting.Mount(url, environment=environment) as mount:
            for path, content in arrays(sample).items():
                npy = np.load(layout.decoded(mount.files, mount.store, path, "npy"))
                assert npy.tobytes() == content.tobytes(), path


@pytest.mark.parametrize("dates", [("20200101000000Z", "20210101000000Z"), ("20990101000000Z", "20991231000000Z")])
def test_a_self_signed_certificate_outside_its_dates_is_refused(dates, sample, tmp_path):
    for name in "own", "mountpoint":
        (tmp_path / name).mkdir()
    context, own = signing_itself(tmp_path / "own", dates=dates)
    with served_by_tls(sample, context) as port:
        url = f"https://localhost:{port}"
        line = refusal(url, keys={"SSL_CERT_FILE": str(own)}, folder=tmp_path / "mountpoint")
        word = "expired" if dates[0].startswith("2020") else "not valid yet"
        assert "the server's certificate is not trusted" in line and word in line, line
