"""Apache over a folder of this machine, with index pages."""

import os

from servers.process import Server
from servers.programs import INSTALLED, on_path

UNPACKED = INSTALLED / "apache2-bin"
MODULES = ["mpm_event", "authz_core", "dir", "autoindex", "mime"]
CONFIGURATION = """
ServerRoot {folder}
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
PidFile {folder}/pid
ErrorLog /dev/stderr
TypesConfig /dev/null
{modules}
{user}
DocumentRoot {data}
DirectoryIndex disabled
<Directory {data}>
    Require all granted
    Options +Indexes
    IndexOptions FancyIndexing NameWidth=*
</Directory>
"""


class Apache(Server):
    def __init__(self, folder):
        super().__init__(folder)
        self.data = self.folder / "data"
        self.data.mkdir()
        if os.geteuid() == 0:
            # Apache does not run as root, and somebody else may not look into root's temporary folders.
            os.chmod(folder, 0o711)

    def find(self):
        return on_path("apache2", "/usr/sbin", str(UNPACKED / "usr/sbin"))

    def arguments(self):
        # Its modules lie beside it.
        modules = os.path.join(os.path.dirname(os.path.dirname(self.program)), "lib/apache2/modules")
        loads = [f"LoadModule {name}_module {modules}/mod_{name}.so" for name in MODULES]
        path = self.folder / "apache.conf"
        path.write_text(
            CONFIGURATION.format(
                folder=self.folder,
                port=self.port,
                modules="\n".join(loads),
                user="User nobody\nGroup nogroup" if os.geteuid() == 0 else "",
                data=self.data,
            )
        )
        return ["-X", "-f", path]

    def environment(self):
        libraries = [str(path) for path in (UNPACKED / "usr/lib").glob("*-linux-gnu")]
        return {"LD_LIBRARY_PATH": os.pathsep.join(libraries)}

    def variables(self):
        return {"ZARRFS_TEST_APACHE": self.url, "ZARRFS_TEST_APACHE_DIR": str(self.data)}
