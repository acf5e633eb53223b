/** Lines of source: samples whose own code is the line. */

/** @import {Column} from "./table.js" */
/** @import {Shown} from "./shown.js" */
import { countCell, element } from "./dom.js";
import { grouped, percent, points } from "./numbers.js";
import { Table } from "./table.js";

/**
 * A line of a function. Line 0 means that no line is known.
 * @typedef {{id: number, line: number, symbol: number, self: number, base: number}} LineRow
 */

/**
 * @param {Shown} shown
 * @returns {LineRow[]}
 */
export function lineRows(shown) {
  const { profile, selection } = shown;
  /** @type {Map<string, LineRow>} */
  const rows = new Map();
  /** @param {"self"|"base"} part */
  const add = (part) => (/** @type {number} */ key, /** @type {number} */ count) => {
    const node = profile.code[profile.keyNode[key]];
    const symbol = node > 0 ? profile.symbol[node] : -1;
    const id = symbol >= 0 ? profile.functionOf[symbol] : -1;
    if (id < 0) return;
    const line = profile.keyLine[key];
    const name = `${id} ${line}`;
    let row = rows.get(name);
    if (row === undefined) rows.set(name, (row = { id, line, symbol: profile.functions[id], self: 0, base: 0 }));
    row[part] += count;
  };
  selection.each(selection.range, add("self"));
  if (selection.base !== null) selection.each(selection.base, add("base"));
  return [...rows.values()];
}

/**
 * @param {Shown} shown
 * @returns {Column<LineRow>[]}
 */
export function lineColumns(shown) {
  const { profile } = shown;
  const change = (/** @type {LineRow} */ row) => shown.change(row.self, row.base);
  /** @type {Column<LineRow>[]} */
  const columns = [
    { title: "Self", numeric: true, cell: (row) => countCell(grouped(row.self), percent(row.self, shown.whole)), value: (row) => row.self },
    { title: "Line", numeric: false, cell: (row) => [profile.lineText(row.line) || "(unknown)"], value: (row) => profile.lineText(row.line) },
    { title: "Function", numeric: false, cell: (row) => [profile.nameOf(row.symbol)], value: (row) => profile.nameOf(row.symbol) },
  ];
  if (shown.base !== null) columns.splice(1, 0, { title: "Change, points", numeric: true, cell: (row) => [points(change(row))], value: change });
  return columns;
}

export class Lines {
  /** @param {(symbol: number) => void} choose */
  constructor(choose) {
    /** @type {Table<LineRow>} */
    this.table = new Table("Lines", {
      choose: (row) => choose(row.symbol),
      isFound: (row) => /** @type {Shown} */ (this.shown).isFound(row.symbol),
    });
    this.root = element("div", { class: "split" }, element("div", {}, this.table.root));
  }

  /** @param {Shown} shown */
  show(shown) {
    this.shown = shown;
    const rows = lineRows(shown).filter((row) => shown.matches === null || shown.isFound(row.symbol));
    this.table.show(lineColumns(shown), rows, 0);
  }
}
