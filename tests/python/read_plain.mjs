// Reads arrays of plain stores with zarrita: the jobs and answers of read_plain.py.
//
//     node read_plain.mjs NODE_MODULES v2|v3 < JOBS
import { createHash } from "node:crypto";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , modules, version] = process.argv;
const zarr = await import(pathToFileURL(`${modules}/zarrita/dist/src/index.js`));
const { default: FileSystemStore } = await import(pathToFileURL(`${modules}/@zarrita/storage/dist/src/fs.js`));

// Returns the bytes of elements in C order; texts after their lengths.
function bytesOf(data) {
    if (data.buffer) {
        return [Buffer.from(data.buffer, data.byteOffset, data.byteLength)];
    }
    return Array.from(data).flatMap((element) => {
        const bytes = Buffer.from(element);
        const length = Buffer.alloc(4);
        length.writeUInt32LE(bytes.length);
        return [length, bytes];
    });
}

async function read({ store, array: path, box }) {
    const array = await zarr.open[version](new FileSystemStore(`${store}/${path}`), { kind: "array" });
    // An array without dimensions would come as a plain value.
    const { data, shape } = array.shape.length === 0
        ? await array.getChunk([])
        : await zarr.get(array, box?.map(([start, stop]) => zarr.slice(start, stop)));
    const hash = createHash("sha256");
    bytesOf(data).forEach((bytes) => hash.update(bytes));
    return { shape, sha256: hash.digest("hex") };
}

for await (const line of createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    const found = await read(job).catch((error) => ({ error: `${error.name}: ${error.message}` }));
    console.log(JSON.stringify({ id: job.id, ...found }));
}
