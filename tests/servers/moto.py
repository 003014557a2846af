"""moto, a mock of S3 that keeps keys as they are, odd ones too, and takes any credentials."""

from servers import web
from servers.process import Server
from servers.programs import installed

BUCKET = "test"


class Moto(Server):
    def find(self):
        return installed("bin/moto_server")

    def arguments(self):
        return ["-H", "127.0.0.1", "-p", self.port]

    def prepare(self):
        web.expect_success("bucket", web.request(f"{self.url}/{BUCKET}", method="PUT"))

    def variables(self):
        return {"ZARRFS_TEST_MOTO": self.url}
