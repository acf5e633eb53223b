/** A table whose columns sort it. */

import { element } from "./dom.js";

/** Rows that are drawn at first, and with each request for more. */
const STEP = 300;

/**
 * A column: its title, the text or nodes of a row's cell, and the value that sorts it.
 * @template R
 * @typedef {{title: string, numeric: boolean, cell: (row: R) => (string|Node)[], value: (row: R) => number|string}} Column
 */

/** @template R */
export class Table {
  /**
   * @param {string} label
   * @param {{choose?: (row: R) => void, isChosen?: (row: R) => boolean, isFound?: (row: R) => boolean, key?: (row: R) => string}} [events]
   *   Rows of equal `key` are the same row in another profile.
   */
  constructor(label, events = {}) {
    this.events = events;
    this.head = element("tr");
    this.body = element("tbody");
    this.more = element("button", { type: "button", click: () => this.grow() }, "Show more rows");
    this.table = element("table", { "aria-label": label }, element("thead", {}, this.head), this.body);
    this.root = element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, this.table, this.more);
    this.sorted = 0;
    this.down = true;
    this.limit = STEP;
    /** @type {R[]} */
    this.rows = [];
    /** @type {Column<R>[]} */
    this.columns = [];
    this.body.addEventListener("keydown", (event) => this.onKey(event));
  }

  /**
   * @param {Column<R>[]} columns
   * @param {R[]} rows
   * @param {number} sorted the column that sorts the rows at first
   */
  show(columns, rows, sorted) {
    if (this.columns.length !== columns.length) [this.sorted, this.down, this.limit] = [sorted, true, STEP];
    const focused = [...this.body.children].indexOf(/** @type {Element} */ (document.activeElement));
    const key = focused < 0 || this.rows[focused] === undefined ? undefined : this.events.key?.(this.rows[focused]);
    this.columns = columns;
    this.rows = rows;
    this.render();
    if (key === undefined) return;
    const at = this.rows.findIndex((row) => this.events.key?.(row) === key);
    /** @type {HTMLElement|undefined} */ (this.body.children[at])?.focus({ preventScroll: true });
  }

  grow() {
    this.limit += STEP;
    this.render();
  }

  /** @param {number} at */
  sortBy(at) {
    this.down = this.sorted === at ? !this.down : this.columns[at].numeric;
    this.sorted = at;
    this.render();
    /** @type {HTMLElement|undefined} */ (this.head.children[at]?.firstElementChild)?.focus();
  }

  render() {
    const { columns } = this;
    this.head.replaceChildren(...columns.map((column, at) => {
      const arrow = at === this.sorted ? (this.down ? " ▾" : " ▴") : "";
      return element("th", {
        scope: "col", class: column.numeric ? "number" : null,
        "aria-sort": at === this.sorted ? (this.down ? "descending" : "ascending") : null,
      }, element("button", { type: "button", click: () => this.sortBy(at) }, column.title + arrow));
    }));
    if (columns.length === 0) return;
    const value = columns[this.sorted].value;
    const sign = this.down ? -1 : 1;
    const order = (/** @type {R} */ a, /** @type {R} */ b) => {
      const [one, two] = [value(a), value(b)];
      return one === two ? 0 : one < two ? -sign : sign;
    };
    this.rows = [...this.rows].sort(order);
    this.body.replaceChildren(...this.rows.slice(0, this.limit).map((row) => this.line(columns, row)));
    if (this.rows.length === 0) this.body.append(element("tr", {}, element("td", { colspan: columns.length }, "no samples")));
    this.more.hidden = this.rows.length <= this.limit;
    this.more.textContent = `Show more of ${this.rows.length} rows`;
  }

  /**
   * @param {Column<R>[]} columns
   * @param {R} row
   */
  line(columns, row) {
    const { choose, isChosen, isFound } = this.events;
    const cells = columns.map((column) => element("td", { class: column.numeric ? "number" : "name" }, ...column.cell(row)));
    if (choose === undefined) return element("tr", { class: isFound?.(row) ? "found" : null }, ...cells);
    return element("tr", {
      tabindex: 0, class: isFound?.(row) ? "found" : null, "aria-selected": isChosen?.(row) ? "true" : null,
      click: () => choose(row), role: "row",
    }, ...cells);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const line = /** @type {HTMLElement} */ (event.target);
    const to = event.key === "ArrowDown" ? line.nextElementSibling : event.key === "ArrowUp" ? line.previousElementSibling : null;
    if (to !== null) /** @type {HTMLElement} */ (to).focus();
    else if (event.key === "Enter" || event.key === " ") line.click();
    else return;
    event.preventDefault();
  }
}
