// Prints a line of JSON for each file that vtk.js reads: type, dimensions, spacing, origin, and the elements' bytes in base64.
//
//     node read_vti.mjs NODE_MODULES FILE...
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// vtk.js asks a browser's DOM for the kinds of XML nodes.
globalThis.Node = { ELEMENT_NODE: 1 };
const [, , modules, ...files] = process.argv;
const { newInstance } = await import(pathToFileURL(`${modules}/@kitware/vtk.js/IO/XML/XMLImageDataReader.js`));
for (const file of files) {
    const reader = newInstance();
    const content = readFileSync(file);
    reader.parseAsArrayBuffer(content.buffer.slice(content.byteOffset, content.byteOffset + content.length));
    const image = reader.getOutputData();
    const elements = image.getPointData().getScalars().getData();
    console.log(JSON.stringify({
        type: elements.constructor.name, dimensions: image.getDimensions(), spacing: image.getSpacing(), origin: image.getOrigin(),
        elements: Buffer.from(elements.buffer, elements.byteOffset, elements.byteLength).toString("base64"),
    }));
}
