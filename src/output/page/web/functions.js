/** Functions, and the callers and callees of the chosen one. */

/** @import {Column} from "./table.js" */
/** @import {FunctionRow} from "./groups.js" */
/** @import {Shown} from "./shown.js" */
import { countCell, element, swatch } from "./dom.js";
import { callees, callers, calls, functions } from "./groups.js";
import { lineRows, lineColumns } from "./lines.js";
import { grouped, percent, points } from "./numbers.js";
import { Table } from "./table.js";
import { CallTree } from "./tree.js";

export class Functions {
  /** @param {(symbol: number) => void} choose a function, by one of its symbols */
  constructor(choose) {
    /** @type {Table<FunctionRow>} */
    this.table = new Table("Functions", {
      choose: (row) => choose(row.symbol),
      isChosen: (row) => row.id === this.chosen,
      key: (row) => /** @type {Shown} */ (this.shown).profile.nameOf(row.symbol),
      isFound: (row) => /** @type {Shown} */ (this.shown).isFound(row.symbol),
    });
    this.callers = new CallTree("Callers", callers, choose);
    this.callees = new CallTree("Callees", callees, choose);
    /** @type {Table<import("./lines.js").LineRow>} */
    this.lines = new Table("Lines of the function");
    this.name = element("h2", { class: "wrap" });
    this.side = element("div", { class: "stack", hidden: true }, this.name,
      element("section", {}, element("h3", {}, "Callers"), this.callers.root),
      element("section", {}, element("h3", {}, "Callees"), this.callees.root),
      element("section", {}, element("h3", {}, "Lines, of its own samples"), this.lines.root));
    this.root = element("div", { class: "split" }, element("div", {}, this.table.root), this.side);
    this.chosen = -1;
  }

  /**
   * @param {Shown} shown
   * @param {number} chosen the chosen function, or −1
   */
  show(shown, chosen) {
    this.shown = shown;
    this.chosen = chosen;
    const rows = functions(shown).filter((row) => shown.matches === null || shown.isFound(row.symbol));
    this.table.show(this.columns(shown), rows, shown.base === null ? 1 : 2);
    this.side.hidden = chosen < 0;
    if (chosen < 0) return;
    const group = calls(shown, chosen);
    const row = functions(shown).find((one) => one.id === chosen);
    this.name.textContent = shown.profile.nameOf(group.symbol);
    this.callers.show(shown, callers(shown, group));
    this.callees.show(shown, callees(shown, group));
    this.lines.show(lineColumns(shown), lineRows(shown).filter((line) => line.id === chosen), 0);
    this.name.append(element("small", {}, ` ${shown.describe(row?.total ?? 0, row?.baseTotal)}; ${grouped(row?.self ?? 0)} in itself`));
  }

  /**
   * @param {Shown} shown
   * @returns {Column<FunctionRow>[]}
   */
  columns(shown) {
    const { profile } = shown;
    const count = (/** @type {number} */ samples) => countCell(grouped(samples), percent(samples, shown.whole));
    /** @type {Column<FunctionRow>[]} */
    const columns = [
      { title: "Total", numeric: true, cell: (row) => count(row.total), value: (row) => row.total },
      { title: "Self", numeric: true, cell: (row) => count(row.self), value: (row) => row.self },
      { title: "Kind", numeric: false, cell: (row) => [this.kind(row)], value: (row) => this.kind(row) },
      {
        title: "Function", numeric: false, value: (row) => profile.nameOf(row.symbol),
        cell: (row) => [swatch(profile.colours[row.symbol]), profile.nameOf(row.symbol)],
      },
    ];
    if (shown.base === null) return columns;
    const change = (/** @type {FunctionRow} */ row) => shown.change(row.total, row.baseTotal);
    const self = (/** @type {FunctionRow} */ row) => shown.change(row.self, row.baseSelf);
    columns.splice(2, 0,
      { title: "Change of total, points", numeric: true, cell: (row) => [points(change(row))], value: change },
      { title: "Change of self, points", numeric: true, cell: (row) => [points(self(row))], value: self });
    return columns;
  }

  /** @param {FunctionRow} row */
  kind(row) {
    const { profile } = /** @type {Shown} */ (this.shown);
    const kind = profile.kinds[profile.symbolKind[row.symbol]];
    return kind.language || kind.name;
  }
}
