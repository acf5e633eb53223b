/** The profile: the document of docs/design/page.md as typed arrays. */

import { colours } from "./colour.js";

/**
 * @typedef {{name: string, legend: string|null, colour: string, language: string, inlined: boolean,
 *   interpreted: boolean, wait: boolean, family: number}} Kind
 * @typedef {{ticks: number, filtered: number, kept: number, lost: [string, number][], missed: number,
 *   expected: number, period_ns: number, one_in?: number, longest_period_ns?: number}} Accounts
 * @typedef {{name: string, title: string, unit: string, accounts: Accounts}} SampledEvent
 * @typedef {{subject: string, left_out: number, what: string, advice: string}} ReachedLimit
 * @typedef {{title: string, namespace: string, pod: string, id: string}} Container
 */

/**
 * The pauses of JVMs, by process and column. Documents from before the field have none.
 * @param {Record<string, number[]>|undefined} columns
 * @returns {import("./pauses.js").PauseMark[]}
 */
function readPauses(columns) {
  if (columns === undefined) return [];
  const { pid, column, safepoints, safepoint_usec, collections, collection_usec } = columns;
  return pid.map((of, at) => ({
    pid: of, column: column[at], safepoints: safepoints[at], safepoint_usec: safepoint_usec[at],
    collections: collections[at], collection_usec: collection_usec[at],
  }));
}

/** The version of the document's shape that this page reads. */
const VERSION = 1;

/**
 * Reads the document: plain, or `{"deflate-raw": "base64"}`.
 * @param {string} text
 * @returns {Promise<any>}
 */
export async function unpack(text) {
  let read = JSON.parse(text);
  if (read["deflate-raw"] !== undefined) {
    const binary = atob(read["deflate-raw"]);
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    read = JSON.parse(await new Response(stream).text());
  }
  if (read.version !== VERSION) throw new Error(`The profile has version ${read.version}; this page reads version ${VERSION}.`);
  return read;
}

/**
 * Adds each number to the ones before.
 * @param {number[]} steps
 * @returns {Int32Array}
 */
function summed(steps) {
  const sums = new Int32Array(steps.length);
  let sum = 0;
  for (let at = 0; at < steps.length; at++) sums[at] = sum += steps[at];
  return sums;
}

/**
 * The nodes of all stacks.
 * @param {{depth: number[], symbol: number[]}} columns
 */
function readNodes(columns) {
  const count = columns.depth.length + 1;
  const depth = new Uint16Array(count);
  const parent = new Int32Array(count);
  const symbol = new Int32Array(count).fill(-1);
  const end = new Int32Array(count).fill(count);
  const path = [0];
  for (let node = 1; node < count; node++) {
    const level = columns.depth[node - 1];
    while (path.length > level) end[/** @type {number} */ (path.pop())] = node;
    depth[node] = level;
    parent[node] = path[level - 1];
    symbol[node] = columns.symbol[node - 1];
    path.push(node);
  }
  return { count, depth, parent, symbol, end };
}

/**
 * Kinds of one family with equal names are one function: a Java method as compiled, inlined and interpreted.
 * @param {Kind[]} kinds
 * @param {string[]} strings
 * @param {{name: number[], kind: number[]}} symbols
 */
function findFunctions(kinds, strings, symbols) {
  /** @type {Map<string, number>} */
  const ids = new Map();
  const ofSymbol = new Int32Array(symbols.name.length).fill(-1);
  /** @type {number[]} */
  const first = [];
  symbols.name.forEach((name, symbol) => {
    const { family } = kinds[symbols.kind[symbol]];
    if (family < 0) return;
    const key = `${family} ${strings[name]}`;
    let id = ids.get(key);
    if (id === undefined) {
      ids.set(key, (id = first.length));
      first.push(symbol);
    }
    ofSymbol[symbol] = id;
  });
  return { ofSymbol, first };
}

/** A profile. Node 0 is the root; the nodes are in preorder, so that a node's stacks are a range of nodes. */
export class Profile {
  /** @param {any} read the parsed document */
  constructor(read) {
    /** @type {string} */
    this.title = read.title;
    /** @type {number} */
    this.start_ms = read.start_unix_ms;
    /** @type {number} */
    this.column_ms = read.column_ms;
    /** @type {number} */
    this.columns = read.columns;
    /** Columns behind time that the profile does not have, and when they begin. @type {{column: number, start_ms: number}[]} */
    this.breaks = read.breaks ?? [{ column: 0, start_ms: read.start_unix_ms }];
    /** @type {Kind[]} */
    this.kinds = read.kinds;
    /** @type {string[]} */
    this.strings = read.strings;
    /** @type {SampledEvent[]} */
    this.events = read.events;
    /** @type {Container[]} */
    this.containers = read.containers;
    this.labels = read.labels;
    this.lines = read.lines;
    this.report = read.report;
    /** What the page compares at first. @type {{range: [number, number], base: [number, number]}|undefined} */
    this.compare = read.compare;
    /** @type {ReachedLimit[]} */
    this.limits = read.limits;
    this.pauses = readPauses(read.pauses);
    /** @type {number[]} */
    this.symbolName = read.symbols.name;
    /** @type {number[]} */
    this.symbolKind = read.symbols.kind;
    /** For each symbol its colour. */
    this.colours = colours(this.kinds, read.symbols);

    const nodes = readNodes(read.nodes);
    this.nodes = nodes.count;
    this.depth = nodes.depth;
    this.parent = nodes.parent;
    /** For each node its symbol; −1 for the root. */
    this.symbol = nodes.symbol;
    /** For each node the first node behind the stacks that begin with it. */
    this.end = nodes.end;

    const functions = findFunctions(this.kinds, this.strings, read.symbols);
    /** For each symbol its function; −1 for frames that are not code. */
    this.functionOf = functions.ofSymbol;
    /** For each function its first symbol. */
    this.functions = functions.first;
    /** Whether a node is the outermost call of its function in its stack, so that recursion counts once. */
    this.outermost = new Uint8Array(this.nodes);
    /** The node that has a sample's own time: the code below a frame that says why the thread waited. */
    this.code = new Int32Array(this.nodes);
    this.markCode();

    /** A key is what samples have in common: event, stack, line, labels. A row is a column of time of a key. */
    const { samples } = read;
    this.keys = samples.node.length;
    this.keyEvent = Uint8Array.from(samples.event);
    this.keyNode = summed(samples.node);
    this.keyLabels = Int32Array.from(samples.labels);
    this.keyLine = Int32Array.from(samples.line);
    this.rowCount = Float64Array.from(samples.count);
    /** For each key its first row. */
    this.firstRow = new Int32Array(this.keys + 1);
    this.rowColumn = Int32Array.from(samples.column);
    for (let key = 0; key < this.keys; key++) {
      const end = (this.firstRow[key + 1] = this.firstRow[key] + samples.rows[key]);
      for (let row = this.firstRow[key] + 1; row < end; row++) this.rowColumn[row] += this.rowColumn[row - 1];
    }
  }

  markCode() {
    const open = new Uint16Array(this.functions.length);
    const path = [-1];
    for (let node = 1; node < this.nodes; node++) {
      while (path.length > this.depth[node]) {
        const left = /** @type {number} */ (path.pop());
        if (left >= 0) open[left]--;
      }
      const id = this.functionOf[this.symbol[node]];
      path.push(id);
      this.code[node] = this.kindOf(node).wait ? this.code[this.parent[node]] : node;
      if (id >= 0 && open[id]++ === 0) this.outermost[node] = 1;
    }
  }

  /**
   * When a column begins: milliseconds since 1970, or since the begin of a profile without a wall clock.
   * @param {number} column
   * @returns {number}
   */
  msOf(column) {
    const since = this.breaks.findLast((one) => one.column <= column) ?? this.breaks[0];
    return since.start_ms + (column - since.column) * this.column_ms;
  }

  /**
   * The column that begins next to a time, at most the one behind the last.
   * @param {number} ms
   * @returns {number}
   */
  columnAt(ms) {
    const since = this.breaks.findLast((one) => one.start_ms <= ms + this.column_ms / 2) ?? this.breaks[0];
    return Math.max(0, Math.min(this.columns, since.column + Math.round((ms - since.start_ms) / this.column_ms)));
  }

  /**
   * @param {number} symbol
   * @returns {string}
   */
  nameOf(symbol) {
    return symbol < 0 ? "all" : this.strings[this.symbolName[symbol]];
  }

  /**
   * @param {number} node not the root
   * @returns {Kind}
   */
  kindOf(node) {
    return this.kinds[this.symbolKind[this.symbol[node]]];
  }

  /**
   * A line as text; empty for line 0, which means that no line is known.
   * @param {number} line
   * @returns {string}
   */
  lineText(line) {
    if (line === 0) return "";
    const file = this.strings[this.lines.file[line]].split("/").pop();
    const number = this.lines.line[line];
    const bci = this.lines.bci[line];
    return `${file}${number > 0 ? `:${number}` : ""}${bci >= 0 ? ` @ bci ${bci}` : ""}`;
  }
}
