"""scripts/servers: the command's own exit status, and no server left behind, whatever ends the runner."""

import os
import signal
import subprocess
import sys

import pytest

from mounting import ROOT, wait_until
from servers import web

# Runs a server and prints its address.
RUN = """
import sys, time
sys.path.insert(0, sys.argv[1])
from servers.plain_http import PlainHttp
from servers.together import running
with running([PlainHttp]) as variables:
    print(variables["ZARRFS_TEST_HTTP"], flush=True)
    time.sleep(600)
"""


def test_the_exit_status_is_that_of_the_command():
    command = [ROOT / "scripts/servers", "sh", "-c"]
    for script, status in [("test -n \"$ZARRFS_TEST_HTTP\" && exit 3", 3), ("kill -9 $$", 137)]:
        assert subprocess.run([*command, script], timeout=120).returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_servers_end_with_their_runner(number, tmp_path):
    command = [sys.executable, "-c", RUN, ROOT / "tests"]
    # A runner that is killed leaves its folder.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    # A caller in the background ignores SIGINT, which its children inherit.
    runner = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        url = runner.stdout.readline().strip()
        assert web.answers(url)
        runner.send_signal(number)
        runner.wait(60)
        assert wait_until(lambda: not web.answers(url))
    finally:
        runner.kill()
        runner.wait()
        runner.stdout.close()
