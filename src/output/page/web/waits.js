/** What the leaf of a wait says: `[wait: monitor com.example.Cache]`, `[blocked: disk read]`, `[idle: timer]`, `[runnable]`. */

/** @import {Profile} from "./data.js" */

/** Reasons of waits for Java locks. The class of the lock stands behind them. */
const OF_LOCKS = ["monitor", "Object.wait", "park"];

/** Reasons of threads that could run: `--reason` has the same names. @type {Record<string, string>} */
const QUEUED = { runnable: "CPU", throttled: "quota" };

/** A wait. An empty text means that there is none. @typedef {{state: string, reason: string, lock: string}} Wait */

/** @type {Wait} */
const NONE = { state: "", reason: "", lock: "" };

/**
 * @param {string} kind of the frame
 * @param {string} name of the frame
 * @returns {Wait}
 */
function read(kind, name) {
  const [, word, text = ""] = /^\[([^:\]]*)(?:: (.*))?\]$/s.exec(name) ?? [name, name];
  if (kind === "queued") return { state: word, reason: QUEUED[word] ?? word, lock: "" };
  const state = kind === "blocked" ? "blocked" : "sleeping";
  const reason = OF_LOCKS.find((one) => text.startsWith(`${one} `));
  return reason === undefined ? { state, reason: text, lock: "" } : { state, reason, lock: text.slice(reason.length + 1) };
}

/**
 * The wait of each key.
 * @param {Profile} profile
 * @returns {(key: number) => Wait}
 */
export function waitsOf(profile) {
  /** @type {Map<number, Wait>} */
  const bySymbol = new Map();
  return (key) => {
    // Above the frame of a wait is only its waker.
    let at = -1;
    for (let node = profile.keyNode[key]; node > 0 && profile.kindOf(node).wait; node = profile.parent[node]) at = node;
    if (at < 0) return NONE;
    const symbol = profile.symbol[at];
    let wait = bySymbol.get(symbol);
    if (wait === undefined) bySymbol.set(symbol, (wait = read(profile.kindOf(at).name, profile.nameOf(symbol))));
    return wait;
  };
}
