"""References to the chunks of HDF5 and netCDF-4 files, as kerchunk makes them, and fsspec's files of them."""

import base64
import itertools
import json
import threading
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
from RangeHTTPServer import RangeRequestHandler


def compressor(dataset):
    """Returns the codec of a dataset's chunks in the words of v2."""
    if dataset.compression == "gzip":
        return {"id": "zlib", "level": dataset.compression_opts}
    assert dataset.compression is None
    return None


def chunk_places(dataset):
    """Yields (chunk index, offset, length) of the chunks of a dataset."""
    if dataset.chunks is None:
        yield (0,) * dataset.ndim, dataset.id.get_offset(), dataset.nbytes
        return
    for number in range(dataset.id.get_num_chunks()):
        chunk = dataset.id.get_chunk_info(number)
        index = tuple(at // length for at, length in zip(chunk.chunk_offset, dataset.chunks))
        yield index, chunk.byte_offset, chunk.size


def dimensions(dataset):
    """Returns the names of the dimensions in a netCDF-4 file."""
    if "DIMENSION_LIST" not in dataset.attrs:
        return [dataset.name.strip("/")] * dataset.ndim
    file = dataset.file
    return [file[names[0]].name.strip("/") for names in dataset.attrs["DIMENSION_LIST"]]


def of_netcdf(path, url, inline=100):
    """Returns {key: reference} of v2 to the variables of a netCDF-4 file, which is at `url`. Chunks of less than
    `inline` bytes are in the references."""
    found = {".zgroup": {"zarr_format": 2}, ".zattrs": {}}
    content = path.read_bytes()
    with h5py.File(path) as file:
        for name, dataset in file.items():
            # A dimension without a variable has no values.
            if dataset.attrs.get("NAME", b"").startswith(b"This is a netCDF dimension but not"):
                continue
            order = ">" if dataset.dtype.byteorder == ">" else "<"
            found[f"{name}/.zarray"] = {
                "zarr_format": 2,
                "shape": dataset.shape,
                "chunks": dataset.chunks or dataset.shape,
                "dtype": f"{order}{dataset.dtype.kind}{dataset.dtype.itemsize}",
                "order": "C",
                "fill_value": None,
                "filters": [{"id": "shuffle", "elementsize": dataset.dtype.itemsize}] if dataset.shuffle else None,
                "compressor": compressor(dataset),
            }
            # Not JSON, but Python writes it.
            found[f"{name}/.zattrs"] = {"_ARRAY_DIMENSIONS": dimensions(dataset), "missing": float("nan")}
            for index, offset, length in chunk_places(dataset):
                key = f"{name}/{'.'.join(map(str, index)) or '0'}"
                found[key] = [url, offset, length]
                if length < inline:
                    found[key] = encoded(content[offset : offset + length])
    return found


def encoded(content):
    """Returns bytes as kerchunk puts them into JSON."""
    return "base64:" + base64.b64encode(content).decode()


def as_texts(references):
    """Returns the references with the documents as texts, as kerchunk writes them."""
    return {key: json.dumps(value) if isinstance(value, dict) else value for key, value in references.items()}


def write_parquet(folder, references, record_size=10, **options):
    """Writes references as fsspec's LazyReferenceMapper does."""
    documents = {key: value for key, value in references.items() if isinstance(value, dict)}
    folder.mkdir()
    for array in {key.rpartition("/")[0] for key in documents if key.endswith(".zarray")}:
        facts = documents[f"{array}/.zarray"]
        counts = [-(-length // chunk) for length, chunk in zip(facts["shape"], facts["chunks"])]
        names = [".".join(map(str, index)) or "0" for index in itertools.product(*map(range, counts))]
        rows = [references.get(f"{array}/{name}") for name in names]
        (folder / array).mkdir()
        for number in range(0, len(rows), record_size):
            part = rows[number : number + record_size]
            part += [None] * (record_size - len(part))
            path = folder / array / f"refs.{number // record_size}.parq"
            pyarrow.parquet.write_table(table(part), path, compression="zstd", **options)
    (folder / ".zmetadata").write_text(json.dumps({"metadata": documents, "record_size": record_size}))


def table(rows):
    """Returns the columns of a file of references."""
    parts = [row if isinstance(row, list) else [] for row in rows]
    values = [base64.b64decode(row[7:]) if isinstance(row, str) else None for row in rows]
    urls = [part[0] if part else None for part in parts]
    return pyarrow.table(
        {
            "path": pyarrow.array(urls) if any(urls) else pyarrow.nulls(len(rows)),
            "offset": np.array([part[1] if len(part) > 1 else 0 for part in parts], "int64"),
            "size": np.array([part[2] if len(part) > 1 else 0 for part in parts], "int64"),
            "raw": pyarrow.array(values) if any(values) else pyarrow.nulls(len(rows)),
        }
    )


class Files(RangeRequestHandler):
    """Sends files and parts of them, and notes the paths that are asked for."""

    def do_GET(self):
        self.server.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_):
        pass


@contextmanager
def serving(folder):
    """Serves a folder; yields the server, whose `asked` has the paths and `url` the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
    server.daemon_threads, server.asked = True, []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
