"""nginx over a folder of this machine, twice: as it comes, without listings, and with index pages."""

import os
import signal

from servers.ports import free_port
from servers.process import Server
from servers.programs import INSTALLED, on_path

CONFIGURATION = """
daemon off;
{user}
pid {folder}/pid;
error_log stderr warn;
worker_processes 2;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    default_type application/octet-stream;
    sendfile on;
    tcp_nodelay on;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    root {data};
    server {{ listen 127.0.0.1:{plain}; }}
    server {{ listen 127.0.0.1:{listing}; autoindex on; }}
}}
"""


class Nginx(Server):
    # Its workers end with it only when it can tell them, and nobody else waits for them.
    death_signal = signal.SIGTERM

    def __init__(self, folder):
        super().__init__(folder)
        self.listing_port = free_port()
        self.listing_url = f"http://127.0.0.1:{self.listing_port}"
        self.data = self.folder / "data"
        self.data.mkdir()

    def find(self):
        return on_path("nginx", "/usr/sbin", str(INSTALLED / "nginx/usr/sbin"))

    def arguments(self):
        text = CONFIGURATION.format(
            # Workers of root's are somebody else by default, who may not look into root's folders.
            user="user root;" if os.geteuid() == 0 else "",
            folder=self.folder,
            data=self.data,
            plain=self.port,
            listing=self.listing_port,
        )
        path = self.folder / "nginx.conf"
        path.write_text(text)
        return ["-c", path, "-p", self.folder, "-e", "stderr"]

    def variables(self):
        return {
            "ZARRFS_TEST_NGINX": self.url,
            "ZARRFS_TEST_NGINX_AUTOINDEX": self.listing_url,
            "ZARRFS_TEST_NGINX_DIR": str(self.data),
        }
