/** A call tree whose rows unfold. */

/** @import {Group} from "./groups.js" */
/** @import {Shown} from "./shown.js" */
import { countCell, element, swatch } from "./dom.js";
import { grouped, percent, points } from "./numbers.js";

/** Rows of one parent that are shown at first, and rows of the whole tree. */
const [CHILDREN, ROWS] = [100, 2000];
/** The first rows unfold as long as one child has this part of its parent. */
const MOST = 0.5;
const UNFOLDED = 40;

/** A row: a group of frames, and its children once they were needed. */
class Row {
  /**
   * @param {Group} group
   * @param {number} level 1 for the outermost rows
   * @param {number} place
   * @param {number} of rows beside it
   * @param {string} path the names from the outermost row to this one
   */
  constructor(group, level, place, of, path) {
    this.group = group;
    this.level = level;
    this.place = place;
    this.of = of;
    this.path = path;
    this.open = false;
    /** @type {Row[]|null} */
    this.children = null;
  }
}

export class CallTree {
  /**
   * @param {string} label
   * @param {(shown: Shown, group: Group|null) => Group[]} next the groups below a group
   * @param {(symbol: number) => void} choose
   */
  constructor(label, next, choose) {
    this.next = next;
    this.choose = choose;
    this.body = element("tbody");
    this.head = element("tr", { role: "row" });
    this.table = element("table", { role: "treegrid", "aria-label": label }, element("thead", { role: "rowgroup" }, this.head), this.body);
    this.root = element("div", { class: "scroll" }, this.table);
    /** @type {Row[]} */
    this.rows = [];
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("click", (event) => this.onClick(event));
  }

  /**
   * @param {Shown} shown
   * @param {Group[]} [first] the outermost rows
   */
  show(shown, first = this.next(shown, null)) {
    this.shown = shown;
    const heads = ["Total", "Self", ...(shown.base === null ? [] : ["Change, points"]), "Frame"];
    this.head.replaceChildren(...heads.map((text) => element("th", { scope: "col", role: "columnheader", class: text === "Frame" ? "" : "number" }, text)));
    const before = this.state();
    this.first = this.rowsOf(first, 1);
    if (before.open.size > 0) this.reopen(this.first, before.open);
    else this.unfoldFirst();
    this.render(0);
    if (before.focused === undefined) return;
    const at = this.rows.findIndex((one) => one.path === before.focused);
    if (at >= 0) this.focus(at, true);
  }

  /** Unfolds the first rows as long as one child has most of its parent. */
  unfoldFirst() {
    let [row, unfolded] = [this.first?.[0], 0];
    while (row !== undefined && unfolded++ < UNFOLDED) {
      this.unfold(row);
      const child = (row.children ?? [])[0];
      row = child !== undefined && child.group.total >= MOST * row.group.total ? child : undefined;
    }
  }

  /** Which rows are open, and which one has the focus, by their paths. */
  state() {
    const open = new Set(this.rows.filter((row) => row.open).map((row) => row.path));
    const focused = this.rows[[...this.body.children].indexOf(/** @type {Element} */ (document.activeElement))]?.path;
    return { open, focused };
  }

  /**
   * Opens the rows that were open.
   * @param {Row[]} rows
   * @param {Set<string>} open
   */
  reopen(rows, open) {
    for (const row of rows) {
      if (!open.has(row.path)) continue;
      this.unfold(row);
      this.reopen(row.children ?? [], open);
    }
  }

  /**
   * @param {Group[]} groups
   * @param {number} level
   * @param {string} [above] the path of their parent
   */
  rowsOf(groups, level, above = "") {
    const { profile } = /** @type {Shown} */ (this.shown);
    return groups.slice(0, CHILDREN).map((group, at) => {
      const path = `${above}\n${profile.symbolKind[group.symbol]} ${profile.nameOf(group.symbol)}`;
      return new Row(group, level, at + 1, groups.length, path);
    });
  }

  /** @param {Row} row */
  unfold(row) {
    row.children ??= this.rowsOf(this.next(/** @type {Shown} */ (this.shown), row.group), row.level + 1, row.path);
    row.open = row.children.length > 0;
  }

  /** @param {number} focused place of the row that the Tab key reaches */
  render(focused) {
    this.rows = [];
    const waiting = [...(this.first ?? [])].reverse();
    while (waiting.length > 0 && this.rows.length < ROWS) {
      const row = /** @type {Row} */ (waiting.pop());
      this.rows.push(row);
      if (row.open) waiting.push(...[...(row.children ?? [])].reverse());
    }
    this.body.replaceChildren(...this.rows.map((row, at) => this.line(row, at === focused)));
    if (this.rows.length >= ROWS || this.rows.some((row) => row.of > CHILDREN)) {
      const note = `Shown are at most ${CHILDREN} rows below one frame, those with the most samples, and ${ROWS} rows in all.`;
      this.body.append(element("tr", { role: "row" }, element("td", { colspan: 4, role: "gridcell" }, note)));
    }
    if (this.rows.length === 0) this.body.append(element("tr", { role: "row" }, element("td", { colspan: 4, role: "gridcell" }, "no samples")));
  }

  /**
   * @param {Row} row
   * @param {boolean} focused
   */
  line(row, focused) {
    const shown = /** @type {Shown} */ (this.shown);
    const { group, level } = row;
    const kind = shown.profile.kinds[shown.profile.symbolKind[group.symbol]];
    const indent = element("span", { class: "twisty", "aria-hidden": "true" }, row.children?.length === 0 ? "" : row.open ? "▾" : "▸");
    indent.style.marginLeft = `${(level - 1) * 12}px`;
    const cells = [
      element("td", { class: "number", role: "gridcell" }, ...countCell(grouped(group.total), percent(group.total, shown.whole))),
      element("td", { class: "number", role: "gridcell" }, group.self > 0 ? grouped(group.self) : ""),
    ];
    if (shown.base !== null) cells.push(element("td", { class: "number", role: "gridcell" }, points(shown.change(group.total, group.base))));
    const suffix = kind.interpreted ? "_[0]" : kind.inlined ? " (inlined)" : "";
    cells.push(element("td", { class: "name", role: "gridcell" }, indent, swatch(shown.profile.colours[group.symbol]), shown.profile.nameOf(group.symbol) + suffix));
    return element("tr", {
      role: "row", tabindex: focused ? 0 : -1, "aria-level": level, "aria-posinset": row.place, "aria-setsize": row.of,
      "aria-expanded": row.children?.length === 0 ? null : String(row.open), class: shown.isFound(group.symbol) ? "found" : null,
    }, ...cells);
  }

  /** @param {Event} event */
  placeOf(event) {
    const line = /** @type {HTMLElement} */ (event.target).closest("tr");
    return line === null ? -1 : [...this.body.children].indexOf(line);
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const at = this.placeOf(event);
    if (this.rows[at] !== undefined) this.toggle(at);
  }

  /** @param {number} at */
  toggle(at) {
    const row = this.rows[at];
    if (row.open) row.open = false;
    else this.unfold(row);
    this.render(at);
    this.focus(at);
  }

  /**
   * @param {number} at
   * @param {boolean} [stay] does not scroll
   */
  focus(at, stay = false) {
    const lines = /** @type {HTMLElement[]} */ ([...this.body.children]);
    const wanted = lines[Math.max(0, Math.min(at, lines.length - 1))];
    for (const line of lines) line.tabIndex = line === wanted ? 0 : -1;
    wanted?.focus({ preventScroll: stay });
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const at = this.placeOf(event);
    const row = this.rows[at];
    if (row === undefined) return;
    if (event.key === "ArrowDown") this.focus(at + 1);
    else if (event.key === "ArrowUp") this.focus(at - 1);
    else if (event.key === "Home") this.focus(0);
    else if (event.key === "End") this.focus(this.rows.length - 1);
    else if (event.key === "ArrowRight" && !row.open) this.toggle(at);
    else if (event.key === "ArrowRight") this.focus(at + 1);
    else if (event.key === "ArrowLeft" && row.open) this.toggle(at);
    else if (event.key === "ArrowLeft") {
      let up = at;
      while (up > 0 && this.rows[up].level >= row.level) up--;
      this.focus(up);
    } else if (event.key === "Enter" || event.key === " ") this.toggle(at);
    else if (event.key === "f") this.choose(row.group.symbol);
    else return;
    event.preventDefault();
  }
}
