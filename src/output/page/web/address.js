/** The view in the fragment of the address, so that a copied address leads to the same view. */

/** @import {Profile} from "./data.js" */
/** @import {Range, Selection} from "./selection.js" */

/**
 * What is looked at, beside the selection.
 * @typedef {{tab: string, zoom: number, rootUp: boolean, query: string, chosen: number}} View
 */

/**
 * A hash of a name.
 * @param {string} name
 * @returns {number}
 */
function hashed(name) {
  let hash = 0x811c9dc5;
  for (const letter of name) hash = Math.imul(hash ^ /** @type {number} */ (letter.codePointAt(0)), 0x01000193);
  return hash;
}

/**
 * The hash of a stack, from the hash of its caller's and from that of its last frame. It is the same in another document
 * that has the stack.
 * @param {number} caller
 * @param {number} frame
 * @returns {number}
 */
function mixed(caller, frame) {
  const product = Math.imul(caller ^ frame, 0x9e3779b1);
  return (product ^ (product >>> 15)) >>> 0;
}

/**
 * The hash of a frame. Compiled and inlined code of one name are different frames.
 * @param {Profile} profile
 * @param {number} symbol
 * @returns {number}
 */
function frameOf(profile, symbol) {
  return hashed(`${profile.nameOf(symbol)} ${profile.kinds[profile.symbolKind[symbol]].name}`);
}

/**
 * The hash of a stack.
 * @param {Profile} profile
 * @param {number} node
 * @returns {number}
 */
export function pathOf(profile, node) {
  return node === 0 ? 0 : mixed(pathOf(profile, profile.parent[node]), frameOf(profile, profile.symbol[node]));
}

/**
 * The node whose stack has a hash; 0 if there is none.
 * @param {Profile} profile
 * @param {number} wanted
 * @returns {number}
 */
export function nodeOf(profile, wanted) {
  if (wanted === 0) return 0;
  const names = profile.symbolName.map((_, symbol) => frameOf(profile, symbol));
  const hashes = new Uint32Array(profile.nodes);
  for (let node = 1; node < profile.nodes; node++) {
    hashes[node] = mixed(hashes[profile.parent[node]], names[profile.symbol[node]]);
    if (hashes[node] === wanted) return node;
  }
  return 0;
}

/**
 * @param {Selection} selection
 * @param {View} view
 * @returns {string}
 */
export function write(selection, view) {
  const { profile } = selection;
  const words = new URLSearchParams();
  if (view.tab !== "flame") words.set("view", view.tab);
  if (selection.event > 0) words.set("event", profile.events[selection.event].name);
  if (selection.range !== null) words.set("range", selection.range.join("-"));
  if (selection.base !== null) words.set("compare", selection.base.join("-"));
  selection.dimensions.forEach((dimension, at) => {
    for (const value of selection.chosen[at]) words.append(dimension.name, dimension.values[value]);
  });
  if (view.query !== "") words.set("find", view.query);
  if (view.zoom > 0) words.set("zoom", pathOf(profile, view.zoom).toString(16));
  if (view.chosen >= 0) words.set("function", profile.nameOf(profile.functions[view.chosen]));
  if (!view.rootUp) words.set("root", "bottom");
  return words.toString();
}

/**
 * Sets selection and view; unknown words and values are ignored, because an address can come from anyone.
 * @param {string} text
 * @param {Selection} selection
 * @param {View} view
 * @param {string[]} tabs
 */
export function read(text, selection, view, tabs) {
  const { profile } = selection;
  const words = new URLSearchParams(text);
  const tab = words.get("view") ?? "flame";
  view.tab = tabs.includes(tab) ? tab : "flame";
  selection.event = Math.max(0, profile.events.findIndex((event) => event.name === words.get("event")));
  selection.range = range(words.get("range"), profile.columns);
  selection.base = range(words.get("compare"), profile.columns);
  selection.chosen = selection.dimensions.map((dimension) => {
    const values = words.getAll(dimension.name).map((value) => dimension.values.indexOf(value));
    return new Set(values.filter((value) => value >= 0));
  });
  view.query = words.get("find") ?? "";
  const zoom = words.get("zoom");
  view.zoom = zoom === null ? 0 : nodeOf(profile, Number.parseInt(zoom, 16));
  const name = words.get("function");
  view.chosen = name === null ? -1 : profile.functions.findIndex((symbol) => profile.nameOf(symbol) === name);
  view.rootUp = words.get("root") !== "bottom";
}

/**
 * @param {string|null} text
 * @param {number} columns
 * @returns {Range|null}
 */
function range(text, columns) {
  const found = /^(\d+)-(\d+)$/.exec(text ?? "");
  if (found === null) return null;
  const [from, to] = [Number(found[1]), Math.min(columns, Number(found[2]))];
  return from < to ? [from, to] : null;
}
