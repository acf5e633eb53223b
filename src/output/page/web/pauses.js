/** The pauses of JVMs: how often and how long the Java threads of the selected JVMs stood still. */

/** @import {Profile} from "./data.js" */
/** @import {Range, Selection} from "./selection.js" */
import { grouped, milliseconds } from "./numbers.js";

/**
 * How often and how long a JVM stood still; times are in microseconds.
 * @typedef {{safepoints: number, safepoint_usec: number, collections: number, collection_usec: number}} PauseTotals
 * @typedef {PauseTotals & {pid: number, column: number}} PauseMark
 * @typedef {PauseTotals & {pid: number, name: string}} PausedJvm
 */

/** Properties that are the same for all samples of a process. */
const OF_PROCESS = ["process", "pid", "jvm", "container", "pod", "namespace"];
/** JVMs that are named for one column. */
const NAMED = 4;

/** @returns {PauseTotals} */
function none() {
  return { safepoints: 0, safepoint_usec: 0, collections: 0, collection_usec: 0 };
}

/**
 * @param {PauseTotals} sum
 * @param {PauseTotals} more
 */
function add(sum, more) {
  sum.safepoints += more.safepoints;
  sum.safepoint_usec += more.safepoint_usec;
  sum.collections += more.collections;
  sum.collection_usec += more.collection_usec;
}

/**
 * The names of processes: of JVMs as in the report, of others as in the samples.
 * @param {Profile} profile
 * @returns {(pid: number) => string}
 */
function namer({ report, labels, strings }) {
  /** @type {Map<number, string>} */
  const names = new Map();
  labels.pid.forEach((/** @type {number} */ pid, /** @type {number} */ at) => names.set(pid, strings[labels.process[at]]));
  for (const jvm of report?.jvms ?? []) if (jvm.name !== "") names.set(jvm.pid, jvm.name);
  return (pid) => (names.has(pid) ? `${names.get(pid)} (${pid})` : `JVM ${pid}`);
}

/**
 * Whether a process is selected. Without a choice of processes also those that have no samples are.
 * @param {Selection} selection
 * @returns {(pid: number) => boolean}
 */
function chooser({ profile, dimensions, chosen }) {
  const choices = dimensions.flatMap((dimension, at) =>
    OF_PROCESS.includes(dimension.name) && chosen[at].size > 0 ? [{ ofKey: dimension.ofKey, values: chosen[at] }] : []);
  if (choices.length === 0) return () => true;
  const pids = new Set();
  for (let key = 0; key < profile.keys; key++) {
    if (choices.every(({ ofKey, values }) => values.has(ofKey[key]))) pids.add(profile.labels.pid[profile.keyLabels[key]]);
  }
  return (pid) => pids.has(pid);
}

/** The pauses of the selected JVMs. */
export class Pauses {
  /** @param {Selection} selection */
  constructor(selection) {
    const { profile } = selection;
    const isChosen = chooser(selection);
    this.nameOf = namer(profile);
    this.marks = profile.pauses.filter((mark) => isChosen(mark.pid));
    /** For each column the share of its time in which the JVM with the longest pauses stood still: 0 to 1. */
    this.shares = new Float64Array(profile.columns);
    /** The marks of each column. @type {Map<number, PauseMark[]>} */
    this.byColumn = new Map();
    // A column of a comparison is a run, or seconds of one, and of unknown length: all its marks have the lowest height.
    const length_usec = profile.compare === undefined ? 1000 * profile.column_ms : Infinity;
    for (const mark of this.marks) {
      const share = Math.min(1, mark.safepoint_usec / length_usec);
      this.shares[mark.column] = Math.max(this.shares[mark.column], share);
      const marks = this.byColumn.get(mark.column);
      if (marks === undefined) this.byColumn.set(mark.column, [mark]);
      else marks.push(mark);
    }
  }

  /** Whether the profile knows no pause of the selected JVMs. */
  get isEmpty() {
    return this.marks.length === 0;
  }

  /**
   * The pauses of each JVM in a range, the longest first.
   * @param {Range|null} range
   * @returns {PausedJvm[]}
   */
  byJvm(range) {
    /** @type {Map<number, PausedJvm>} */
    const sums = new Map();
    for (const mark of this.marks) {
      if (range !== null && (mark.column < range[0] || mark.column >= range[1])) continue;
      let sum = sums.get(mark.pid);
      if (sum === undefined) sums.set(mark.pid, (sum = { pid: mark.pid, name: this.nameOf(mark.pid), ...none() }));
      add(sum, mark);
    }
    return [...sums.values()].sort((a, b) => b.safepoint_usec - a.safepoint_usec || a.pid - b.pid);
  }

  /**
   * The sum of all JVMs in a range.
   * @param {Range|null} range
   * @returns {PauseTotals}
   */
  total(range) {
    const sum = none();
    for (const jvm of this.byJvm(range)) add(sum, jvm);
    return sum;
  }

  /**
   * The pauses in a column, with the names of the JVMs.
   * @param {number} column
   * @returns {string}
   */
  describe(column) {
    const jvms = this.byColumn.has(column) ? this.byJvm([column, column + 1]) : [];
    if (jvms.length === 0) return "no JVM pauses";
    const parts = jvms.slice(0, NAMED).map((jvm) => `${jvm.name} stood still for ${pauseText(jvm)}`);
    if (jvms.length > NAMED) parts.push(`${jvms.length - NAMED} more JVMs`);
    return parts.join("; ");
  }
}

/**
 * @param {number} count
 * @param {string} word
 * @returns {string}
 */
function counted(count, word) {
  return `${grouped(count)} ${word}${count === 1 ? "" : "s"}`;
}

/**
 * Pauses in words: `412 ms in 7 safepoints, 3 collections of 380 ms`.
 * @param {PauseTotals} pauses
 * @returns {string}
 */
export function pauseText({ safepoints, safepoint_usec, collections, collection_usec }) {
  const parts = [`${milliseconds(safepoint_usec)} ms in ${counted(safepoints, "safepoint")}`];
  if (collections > 0) parts.push(`${counted(collections, "collection")} of ${milliseconds(collection_usec)} ms`);
  return parts.join(", ");
}
