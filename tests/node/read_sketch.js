// A reader of sketch files in another language, written from docs/format.md alone; tests/test_node.py runs it.
//
//   node read_sketch.js file PATH…      parameters, digest and cells of files, as JSON
//   node read_sketch.js hash            cells of items read from standard input: {items, seed, layout} as JSON
//   node read_sketch.js page PATH       checks every vector in the tables of docs/format.md
//
// Needs Node ≥ 18 and apache-arrow, which opens the file; everything else is here. Numbers beyond 2^53 are BigInt.
"use strict";

const crypto = require("crypto");
const fs = require("fs");

// ── XXH64, from the specification of xxHash ─────────────────────────────────────────────────────────────────────

const M = (1n << 64n) - 1n;
const P1 = 0x9e3779b185ebca87n, P2 = 0xc2b2ae3d27d4eb4fn, P3 = 0x165667b19e3779f9n;
const P4 = 0x85ebca77c2b2ae63n, P5 = 0x27d4eb2f165667c5n;
const rotl = (x, r) => ((x << r) | (x >> (64n - r))) & M;
const round = (acc, lane) => (rotl((acc + lane * P2) & M, 31n) * P1) & M;
const merge = (acc, lane) => (((acc ^ round(0n, lane)) * P1) + P4) & M;

function xxh64(bytes, seed) {
  let at = 0;
  let acc;
  if (bytes.length >= 32) {
    const lanes = [(seed + P1 + P2) & M, (seed + P2) & M, seed, (seed - P1) & M];
    for (; at + 32 <= bytes.length; at += 32)
      for (let i = 0; i < 4; i++) lanes[i] = round(lanes[i], bytes.readBigUInt64LE(at + 8 * i));
    acc = (rotl(lanes[0], 1n) + rotl(lanes[1], 7n) + rotl(lanes[2], 12n) + rotl(lanes[3], 18n)) & M;
    for (const lane of lanes) acc = merge(acc, lane);
  } else acc = (seed + P5) & M;
  acc = (acc + BigInt(bytes.length)) & M;
  for (; at + 8 <= bytes.length; at += 8)
    acc = (rotl(acc ^ round(0n, bytes.readBigUInt64LE(at)), 27n) * P1 + P4) & M;
  if (at + 4 <= bytes.length) {
    acc = (rotl(acc ^ ((BigInt(bytes.readUInt32LE(at)) * P1) & M), 23n) * P2 + P3) & M;
    at += 4;
  }
  for (; at < bytes.length; at++) acc = (rotl(acc ^ ((BigInt(bytes[at]) * P5) & M), 11n) * P1) & M;
  acc = ((acc ^ (acc >> 33n)) * P2) & M;
  acc = ((acc ^ (acc >> 29n)) * P3) & M;
  return acc ^ (acc >> 32n);
}

// ── from an item to its cell ────────────────────────────────────────────────────────────────────────────────────

function word(value) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value & M);
  return bytes;
}

/** Key of one column: a BigInt is an integer, a string a text. */
const key = (column) => xxh64(typeof column === "bigint" ? word(column) : Buffer.from(column, "utf8"), 0n);
const hash = (item, seed) => item.reduce((h, column) => xxh64(word(key(column)), h), seed);

function level(h, levels) {
  let zeros = 0;
  while (zeros < levels - 1 && !(h >> BigInt(63 - zeros))) zeros++;
  return zeros;
}

function hashedCell(h, cells, levels) {
  if (levels === 1) return h % BigInt(cells);
  const size = BigInt(cells / levels);
  return BigInt(level(h, levels)) * size + (h % size);
}

/** Whether h < rate·2^64, exactly; rate is "p/q" or "p". */
function isSampled(h, rate) {
  const [p, q] = `${rate}/1`.split("/").map(BigInt);
  return h * q < p << 64n;
}

// ── the file ────────────────────────────────────────────────────────────────────────────────────────────────────

const sha256 = (...parts) => parts.reduce((h, part) => h.update(part), crypto.createHash("sha256")).digest();
const RUN = 8 * 2 ** 20;

function readSketch(path) {
  const { tableFromIPC } = require("apache-arrow");
  const file = fs.readFileSync(path);
  const table = tableFromIPC(file);
  const metadata = Object.fromEntries(table.schema.metadata);
  if (metadata.unnoise !== "sketch") throw new Error("not a sketch");
  const version = Number(metadata["unnoise.version"]);
  if (version > 2) throw new Error(`version ${version} is too new`);
  const values = table.getChild("noisy_count").data[0].values;
  const cells = Buffer.from(values.buffer, values.byteOffset, 8 * table.numRows);
  const parameters = metadata["unnoise.parameters"];
  return {
    version,
    parameters: { ...JSON.parse(parameters), hash_seed: seedOf(parameters) },
    rows: table.numRows,
    whole: digest(file, cells, parameters, metadata["unnoise.digest"], version) === metadata["unnoise.digest"],
    digest: metadata["unnoise.digest"],
    cells: Array.from(values.subarray(0, table.numRows), String),
  };
}

/** The seed as a text: it has 64 bits, and JSON.parse would round it. */
const seedOf = (parameters) => (parameters.match(/"hash_seed":\s*(\d+)/u) ?? [null, null])[1];

function digest(file, cells, parameters, stored, version) {
  const runs = [];
  for (let at = 0; at < cells.length; at += RUN) runs.push(sha256(cells.subarray(at, at + RUN)));
  if (version === 1) {
    const text = Buffer.from(parameters, "utf8");
    return sha256("unnoise sketch 1\n", word(BigInt(text.length)), text, ...runs).toString("hex");
  }
  const start = cellsIn(file);
  const blank = (side) => Buffer.from(side.toString("latin1").replaceAll(stored, "0".repeat(64)), "latin1");
  const head = blank(file.subarray(0, start));
  const tail = blank(file.subarray(start + cells.length));
  return sha256("unnoise sketch 2\n", word(BigInt(head.length)), head, ...runs, tail).toString("hex");
}

/** Where the cells start: the file is ARROW1‖0‖0, the schema message, the batch message and then the cells. */
function cellsIn(file) {
  let at = 8;
  for (let message = 0; message < 2; message++) at += 8 + file.readInt32LE(at + 4);
  return at;
}

// ── the vectors of the page ─────────────────────────────────────────────────────────────────────────────────────

/** Columns of an item as the page writes it: `1, "a"`, or `"a" × 32` for a text repeated. */
function itemOf(text) {
  const repeated = text.match(/^"(.*)" × (\d+)$/u);
  if (repeated) return [repeated[1].repeat(Number(repeated[2]))];
  return [...text.matchAll(/"([^"]*)"|(-?\d+)/gu)].map((m) => (m[2] === undefined ? m[1] : BigInt(m[2])));
}

function fingerprint(items) {
  const columns = items[0].map((_, i) => items.map((item) => item[i]));
  const types = columns.map((column) => (typeof column[0] === "bigint" ? "int" : "str"));
  const parts = columns.flatMap((column, i) => {
    if (types[i] === "int") return column.map(word);
    const texts = column.map((text) => Buffer.from(text, "utf8"));
    return [...texts.map((text) => word(BigInt(text.length))), ...texts];
  });
  return sha256("unnoise domain 1\n", types.join(","), "\n", word(BigInt(items.length)), ...parts).toString("hex");
}

function checkPage(path) {
  const rows = fs.readFileSync(path, "utf8").split("\n").map((line) => line.split("|").slice(1, -1).map((s) => s.trim()));
  const hex = (n) => n.toString(16).padStart(16, "0");
  const wrong = [];
  let vectors = 0, prints = 0;
  for (const row of rows) {
    if (row.length === 7 && /^`.*`$/u.test(row[0])) {
      const item = itemOf(row[0].slice(1, -1));
      const h = hash(item, BigInt(`0x${row[1]}`));
      const found = [item.map((c) => hex(key(c))).join(" "), hex(h), h % (1n << 20n), level(h, 16), hashedCell(h, 2 ** 20, 16)];
      if (found.map(String).join() !== row.slice(2).join()) wrong.push([row, found.map(String)]);
      vectors++;
    } else if (row.length === 2 && /^[0-9a-f]{64}$/u.test(row[1])) {
      const items = [...row[0].matchAll(/`([^`]*)`/gu)].map((m) => itemOf(m[1]));
      if (fingerprint(items) !== row[1]) wrong.push([row, fingerprint(items)]);
      prints++;
    }
  }
  return { vectors, prints, wrong };
}

// ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────

function cellsOf({ items, layout }) {
  const columns = items.map((item) => item.map((c) => (typeof c === "number" ? BigInt(c) : c)));
  if (layout.kind === "hashed")
    return columns.map((item) => Number(hashedCell(hash(item, BigInt(layout.hash_seed)), layout.cells, layout.levels)));
  const sample = columns.map((item) => isSampled(hash(item, BigInt(layout.hash_seed)), layout.rate));
  return sample.reduce(([ranks, n], kept) => [[...ranks, kept ? n : -1], n + (kept ? 1 : 0)], [[], 0])[0];
}

const [, , command, ...rest] = process.argv;
const commands = {
  file: () => rest.map(readSketch),
  hash: () => cellsOf(JSON.parse(fs.readFileSync(0, "utf8"))),
  page: () => checkPage(rest[0]),
};
process.stdout.write(JSON.stringify(commands[command]()));
