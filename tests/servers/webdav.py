"""`rclone serve webdav`: a folder of this machine as WebDAV, listing included."""

from servers import rclone
from servers.process import Server


class WebDav(Server):
    def __init__(self, folder):
        super().__init__(folder)
        self.data = self.folder / "data"
        self.data.mkdir()

    def find(self):
        return rclone.program()

    def arguments(self):
        # What changes in the folder is seen at once. With no time at all rclone forgets a folder again and again,
        # and hardly answers any more.
        fresh = ["--dir-cache-time", "1ms", "--poll-interval", "0"]
        return ["serve", "webdav", *fresh, "--addr", f"127.0.0.1:{self.port}", self.data]

    def variables(self):
        return {"ZARRFS_TEST_WEBDAV": self.url, "ZARRFS_TEST_WEBDAV_DIR": str(self.data)}
