/** A profile that grows: the sum of documents, each of its own time. What was there keeps its number. */

/** A range of columns, by their number since 1970: the first one, and the one behind the last. @typedef {[number, number]} Slots */

/** Nodes are found by caller and symbol in one number. There are fewer symbols than this. */
const SYMBOLS = 2 ** 22;

/** Numbers for values that are equal by their key. */
class Numbers {
  constructor() {
    /** @type {Map<string|number, number>} */
    this.ids = new Map();
  }

  /**
   * @param {string|number} key
   * @param {() => void} add adds a row for a value that was not there
   * @returns {number}
   */
  of(key, add) {
    let id = this.ids.get(key);
    if (id === undefined) {
      this.ids.set(key, (id = this.ids.size));
      add();
    }
    return id;
  }
}

/**
 * The number of the column that begins a document.
 * @param {any} read the parsed document
 * @returns {number}
 */
function firstSlot(read) {
  return Math.round(read.start_unix_ms / read.column_ms);
}

/**
 * Counts the samples of an event as at another rate, because a sample of a low rate stands for more time. The sum of all
 * samples is exact; the other accounts are converted by the same factor.
 * @param {any} read the parsed document
 * @param {number} event
 * @param {number} period_ns
 */
function countAtRate(read, event, period_ns) {
  const { samples } = read, { accounts } = read.events[event];
  const factor = accounts.period_ns / period_ns;
  let [row, exact, given] = [0, 0, 0];
  samples.rows.forEach((/** @type {number} */ rows, /** @type {number} */ at) => {
    for (const end = row + rows; row < end; row++) {
      if (samples.event[at] !== event) continue;
      exact += samples.count[row] * factor;
      samples.count[row] = Math.round(exact) - given;
      given += samples.count[row];
    }
  });
  accounts.kept = given;
  for (const field of ["filtered", "missed"]) accounts[field] = Math.round(accounts[field] * factor);
  for (const lost of accounts.lost) lost[1] = Math.round(lost[1] * factor);
  accounts.ticks = accounts.lost.reduce((/** @type {number} */ sum, /** @type {[string, number]} */ [, count]) => sum + count, accounts.filtered + given);
  accounts.expected = accounts.ticks + accounts.missed;
  Object.assign(accounts, { period_ns, longest_period_ns: Math.max(accounts.longest_period_ns ?? 0, accounts.period_ns, period_ns) });
}

export class Growing {
  constructor() {
    /** @type {any} */
    this.first = null;
    /** The begin of the earliest document. */
    this.start_ms = 0;
    /** @type {any[]} */
    this.kinds = [];
    /** @type {string[]} */
    this.strings = [];
    this.symbols = { name: /** @type {number[]} */ ([]), kind: /** @type {number[]} */ ([]), shade: /** @type {number[]} */ ([]) };
    /** For each node its caller and its symbol; node 0 is the root. */
    this.nodes = { parent: [-1], symbol: [-1] };
    /** @type {Record<string, any[]>} */
    this.lines = { file: [], line: [], bci: [] };
    /** @type {Record<string, any[]>} */
    this.labels = { process: [], pid: [], thread: [], tid: [], container: [], state: [] };
    /** @type {any[]} */
    this.containers = [];
    /** @type {any[]} */
    this.events = [];
    this.keys = { event: /** @type {number[]} */ ([]), node: /** @type {number[]} */ ([]), labels: /** @type {number[]} */ ([]), line: /** @type {number[]} */ ([]) };
    /** For each key its samples by column. @type {Map<number, number>[]} */
    this.rows = [];
    /** The pauses of JVMs, by process and column. @type {{pid: number, slot: number, sums: Record<string, number>}[]} */
    this.pauses = [];
    /** @type {Slots[]} */
    this.covered = [];
    /** @type {any} */
    this.report = null;
    /** @type {any[]} */
    this.limits = [];
    this.ids = {
      kind: new Numbers(), string: new Numbers(), symbol: new Numbers(), node: new Numbers(), line: new Numbers(),
      label: new Numbers(), container: new Numbers(), event: new Numbers(), key: new Numbers(), pause: new Numbers(),
    };
    this.ids.node.of(-1, () => {});
  }

  /**
   * Adds a document. Its columns must be as long as those of the others.
   * @param {any} read the parsed document
   */
  add(read) {
    this.first ??= read;
    this.start_ms = this.covered.length === 0 ? read.start_unix_ms : Math.min(this.start_ms, read.start_unix_ms);
    this.cover([firstSlot(read), firstSlot(read) + read.columns]);
    const strings = read.strings.map((/** @type {string} */ text) => this.ids.string.of(text, () => this.strings.push(text)));
    const nodes = this.addNodes(read, strings);
    const labels = this.addLabels(read, strings);
    const lines = read.lines.file.map((/** @type {number} */ file, /** @type {number} */ at) =>
      this.addRow(this.lines, this.ids.line, { file: strings[file], line: read.lines.line[at], bci: read.lines.bci[at] }));
    read.events.forEach((/** @type {any} */ { name, accounts }, /** @type {number} */ at) => {
      const known = this.events.find((event) => event.name === name)?.accounts.period_ns ?? 0;
      if (known > 0 && accounts.period_ns > 0 && accounts.period_ns !== known) countAtRate(read, at, known);
    });
    const events = read.events.map((/** @type {any} */ event) => this.addEvent(event));
    this.addSamples(read, { nodes, labels, lines, events });
    this.addPauses(read);
    if (read.report !== null) [this.report, this.limits] = [read.report, read.limits];
  }

  /**
   * A row of a table of columns.
   * @param {Record<string, any[]>} table
   * @param {Numbers} ids
   * @param {Record<string, any>} row
   * @returns {number}
   */
  addRow(table, ids, row) {
    return ids.of(Object.values(row).join(" "), () => {
      for (const [name, value] of Object.entries(row)) table[name].push(value);
    });
  }

  /**
   * @param {any} read
   * @param {number[]} strings
   * @returns {number[]} for each node of the document its node here
   */
  addNodes(read, strings) {
    const kinds = read.kinds.map((/** @type {any} */ kind) => this.ids.kind.of(JSON.stringify(kind), () => this.kinds.push(kind)));
    const { name, kind, shade } = read.symbols;
    const symbols = name.map((/** @type {number} */ text, /** @type {number} */ at) =>
      this.ids.symbol.of(`${strings[text]} ${kinds[kind[at]]}`, () => {
        this.symbols.name.push(strings[text]);
        this.symbols.kind.push(kinds[kind[at]]);
        this.symbols.shade.push(shade[at]);
      }));
    const path = [0];
    const nodes = [0];
    read.nodes.depth.forEach((/** @type {number} */ depth, /** @type {number} */ at) => {
      const [parent, symbol] = [path[depth - 1], symbols[read.nodes.symbol[at]]];
      const node = this.ids.node.of(parent * SYMBOLS + symbol, () => {
        this.nodes.parent.push(parent);
        this.nodes.symbol.push(symbol);
      });
      path[depth] = node;
      nodes.push(node);
    });
    return nodes;
  }

  /**
   * @param {any} read
   * @param {number[]} strings
   * @returns {number[]}
   */
  addLabels(read, strings) {
    const containers = read.containers.map((/** @type {any} */ one) => this.ids.container.of(JSON.stringify(one), () => this.containers.push(one)));
    const { process, pid, thread, tid, container, state } = read.labels;
    return pid.map((/** @type {number} */ of, /** @type {number} */ at) => this.addRow(this.labels, this.ids.label, {
      process: strings[process[at]], pid: of, thread: strings[thread[at]], tid: tid[at],
      container: container[at] < 0 ? -1 : containers[container[at]], state: state[at],
    }));
  }

  /**
   * Adds the accounts of an event. Periods that differ become 0.
   * @param {any} event
   * @returns {number}
   */
  addEvent({ name, title, unit, accounts }) {
    let isNew = false;
    const at = this.ids.event.of(name, () => {
      isNew = true;
      this.events.push({ name, title, unit, accounts: structuredClone(accounts) });
    });
    if (isNew) return at;
    const sum = this.events[at].accounts;
    const [was, is] = [sum.ticks > 0, accounts.ticks > 0];
    sum.longest_period_ns = Math.max(sum.longest_period_ns ?? 0, accounts.longest_period_ns ?? 0);
    for (const field of ["period_ns", "one_in"]) {
      if (!was) sum[field] = accounts[field];
      else if (is && sum[field] !== accounts[field]) sum[field] = 0;
    }
    for (const field of ["ticks", "filtered", "kept", "missed", "expected"]) sum[field] += accounts[field];
    for (const [reason, count] of accounts.lost) {
      const row = sum.lost.find((/** @type {[string, number]} */ [known]) => known === reason);
      if (row === undefined) sum.lost.push([reason, count]);
      else row[1] += count;
    }
    return at;
  }

  /**
   * @param {any} read
   * @param {{nodes: number[], labels: number[], lines: number[], events: number[]}} of the numbers here
   */
  addSamples(read, of) {
    const { samples } = read;
    const base = firstSlot(read);
    let [node, row] = [0, 0];
    for (let at = 0; at < samples.node.length; at++) {
      node += samples.node[at];
      const [event, to, labels, line] = [of.events[samples.event[at]], of.nodes[node], of.labels[samples.labels[at]], of.lines[samples.line[at]]];
      const key = this.ids.key.of(`${event} ${to} ${labels} ${line}`, () => {
        this.keys.event.push(event);
        this.keys.node.push(to);
        this.keys.labels.push(labels);
        this.keys.line.push(line);
        this.rows.push(new Map());
      });
      let slot = base;
      for (let left = samples.rows[at]; left > 0; left--, row++) {
        slot += samples.column[row];
        this.rows[key].set(slot, (this.rows[key].get(slot) ?? 0) + samples.count[row]);
      }
    }
  }

  /** @param {any} read */
  addPauses(read) {
    const { pid = [], column = [], ...counts } = read.pauses ?? {};
    pid.forEach((/** @type {number} */ of, /** @type {number} */ at) => {
      const slot = firstSlot(read) + column[at];
      const place = this.ids.pause.of(`${of} ${slot}`, () => this.pauses.push({ pid: of, slot, sums: {} }));
      const { sums } = this.pauses[place];
      for (const [name, values] of Object.entries(counts)) sums[name] = (sums[name] ?? 0) + values[at];
    });
  }

  /** @param {Slots} range */
  cover(range) {
    const all = [...this.covered, range].sort((a, b) => a[0] - b[0]);
    this.covered = [];
    for (const [from, to] of all) {
      const last = this.covered[this.covered.length - 1];
      if (last !== undefined && from <= last[1]) last[1] = Math.max(last[1], to);
      else this.covered.push([from, to]);
    }
  }

  /** Columns of all documents. */
  get columns() {
    return this.covered.reduce((sum, [from, to]) => sum + to - from, 0);
  }

  /**
   * The sum as a document. Time that no document has is left out: `breaks` has the columns behind it with their time.
   * @returns {any}
   */
  document() {
    const { column_ms } = this.first;
    /** @type {{column: number, slot: number, start_ms: number}[]} */
    const breaks = [];
    let columns = 0;
    for (const [from, to] of this.covered) {
      breaks.push({ column: columns, slot: from, start_ms: columns === 0 ? this.start_ms : from * column_ms });
      columns += to - from;
    }
    const columnOf = (/** @type {number} */ slot) => {
      const of = breaks.findLast((one) => one.slot <= slot) ?? breaks[0];
      return of.column + slot - of.slot;
    };
    const { nodes, place } = this.preorder();
    const samples = { event: this.keys.event.slice(), node: /** @type {number[]} */ ([]), labels: this.keys.labels.slice(), line: this.keys.line.slice(), rows: /** @type {number[]} */ ([]), column: /** @type {number[]} */ ([]), count: /** @type {number[]} */ ([]) };
    let before = 0;
    this.rows.forEach((rows, key) => {
      const node = place[this.keys.node[key]];
      samples.node.push(node - before);
      before = node;
      samples.rows.push(rows.size);
      let last = 0;
      for (const slot of rows.size > 1 ? [...rows.keys()].sort((a, b) => a - b) : rows.keys()) {
        const column = columnOf(slot);
        samples.column.push(column - last);
        samples.count.push(/** @type {number} */ (rows.get(slot)));
        last = column;
      }
    });
    const { version, title } = this.first;
    return {
      version, title, start_unix_ms: this.start_ms, column_ms, columns, breaks, kinds: this.kinds.slice(), strings: this.strings.slice(),
      symbols: { name: this.symbols.name.slice(), kind: this.symbols.kind.slice(), shade: this.symbols.shade.slice() },
      nodes, lines: copied(this.lines), labels: copied(this.labels), containers: this.containers.slice(),
      events: structuredClone(this.events), samples, pauses: this.pauseColumns(columnOf), report: this.report, limits: this.limits,
    };
  }

  /** @param {(slot: number) => number} columnOf */
  pauseColumns(columnOf) {
    const names = ["safepoints", "safepoint_usec", "collections", "collection_usec"];
    return {
      pid: this.pauses.map(({ pid }) => pid),
      column: this.pauses.map(({ slot }) => columnOf(slot)),
      ...Object.fromEntries(names.map((name) => [name, this.pauses.map(({ sums }) => sums[name])])),
    };
  }

  /** The nodes in preorder, siblings by name; and for each node its place among them. */
  preorder() {
    const { parent, symbol } = this.nodes;
    const names = this.symbols.name.map((name) => this.strings[name]);
    const order = [...names.keys()].sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : this.symbols.kind[a] - this.symbols.kind[b]));
    const rank = new Int32Array(names.length);
    order.forEach((one, at) => {
      rank[one] = at;
    });
    const byRank = counted(parent.length - 1, names.length, (at) => rank[symbol[at + 1]], (at) => at + 1);
    const sorted = counted(byRank.items.length, parent.length, (at) => parent[byRank.items[at]], (at) => byRank.items[at]);
    const nodes = { depth: /** @type {number[]} */ ([]), symbol: /** @type {number[]} */ ([]) };
    const place = new Int32Array(parent.length);
    const depth = new Int32Array(parent.length);
    const waiting = [0];
    while (waiting.length > 0) {
      const node = /** @type {number} */ (waiting.pop());
      if (node > 0) {
        depth[node] = depth[parent[node]] + 1;
        nodes.depth.push(depth[node]);
        nodes.symbol.push(symbol[node]);
        place[node] = nodes.depth.length;
      }
      for (let at = sorted.start[node + 1] - 1; at >= sorted.start[node]; at--) waiting.push(sorted.items[at]);
    }
    return { nodes, place };
  }
}

/** @param {Record<string, any[]>} table */
function copied(table) {
  return Object.fromEntries(Object.entries(table).map(([name, column]) => [name, column.slice()]));
}

/**
 * Sorts by small numbers, in one pass; equal ones keep their order.
 * @param {number} count of items
 * @param {number} groups
 * @param {(at: number) => number} groupOf
 * @param {(at: number) => number} itemOf
 */
function counted(count, groups, groupOf, itemOf) {
  const start = new Int32Array(groups + 1);
  for (let at = 0; at < count; at++) start[groupOf(at) + 1]++;
  for (let group = 0; group < groups; group++) start[group + 1] += start[group];
  const next = start.slice();
  const items = new Int32Array(count);
  for (let at = 0; at < count; at++) items[next[groupOf(at)]++] = itemOf(at);
  return { start, items };
}
