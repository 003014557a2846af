// Prints a line of JSON for each file that npyjs reads: type, shape, order, and the elements' bytes in base64.
//
//     node read_npy.mjs NODE_MODULES FILE...
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , modules, ...files] = process.argv;
const { parse } = await import(pathToFileURL(`${modules}/npyjs/dist/index.js`));
for (const file of files) {
    const content = readFileSync(file);
    const buffer = content.buffer.slice(content.byteOffset, content.byteOffset + content.length);
    const { data, shape, dtype, fortranOrder } = parse(buffer, { convertFloat16: false });
    // Truth values come as a plain list.
    const elements = Array.isArray(data) ? Uint8Array.from(data) : data;
    console.log(JSON.stringify({
        type: dtype, shape, order: fortranOrder ? "F" : "C",
        elements: Buffer.from(elements.buffer, elements.byteOffset, elements.byteLength).toString("base64"),
    }));
}
