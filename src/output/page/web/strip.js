/** The time strip: a heat map with a column for each second, in which ranges are selected, and the pauses of JVMs. */

/** @import {Profile} from "./data.js" */
/** @import {Pauses} from "./pauses.js" */
/** @import {Range, Selection} from "./selection.js" */
import { heatColour } from "./colour.js";
import { element, sharp, themed } from "./dom.js";
import { clock, grouped } from "./numbers.js";

/** Height of a row, of the row of numbers, and the width of names, in pixels. */
const [ROW, SCALE, NAMES] = [16, 16, 120];
/** Least height of the mark of a pause. */
const LOWEST = 2;
const MOST_ROWS = 7;
/** Colours on paper, where the background is white whatever the system prefers. */
const PAPER = /** @type {Record<string, string>} */ ({ ground: "#ffffff", panel: "#f4f5f7", ink: "#000000", soft: "#333333", accent: "#0b57d0", mark: "#a8007c", pause: "#5b3ea6" });
const FONT = '11px system-ui, "DejaVu Sans", sans-serif';

export class Strip {
  /**
   * @param {HTMLElement} root
   * @param {Profile} profile
   * @param {(which: "range"|"base", range: Range|null) => void} select
   * @param {(text: string[]) => void} describe
   */
  constructor(root, profile, select, describe) {
    this.root = root;
    this.profile = profile;
    this.select = select;
    this.describe = describe;
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.root.append(this.canvas);
    /** The column that the keys are at, and the other end of the range that they select. */
    this.cursor = 0;
    /** @type {number|null} */
    this.anchor = null;
    /** @type {"range"|"base"} */
    this.which = "range";
    this.heat = { names: /** @type {string[]} */ ([]), cells: /** @type {Float64Array[]} */ ([]) };
    root.addEventListener("keydown", (event) => this.onKey(event));
    root.addEventListener("focus", () => this.paint());
    root.addEventListener("blur", () => this.paint());
    this.canvas.addEventListener("pointerdown", (event) => this.onPress(event));
    this.canvas.addEventListener("pointermove", (event) => this.onMove(event));
    this.canvas.addEventListener("pointerup", () => {
      this.dragging = undefined;
    });
    this.printed = false;
    for (const [name, printed] of /** @type {[string, boolean][]} */ ([["beforeprint", true], ["afterprint", false]])) {
      window.addEventListener(name, () => {
        this.printed = printed;
        this.paint();
      });
    }
    new ResizeObserver(() => this.paint()).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
  }

  /**
   * @param {Selection} selection
   * @param {import("./selection.js").Dimension|null} dimension
   * @param {Pauses} pauses
   */
  show(selection, dimension, pauses) {
    this.selection = selection;
    this.pauses = pauses;
    this.heat = selection.heat(dimension, MOST_ROWS);
    this.paint();
  }

  /** The pauses, if there are any. */
  get marked() {
    return this.pauses?.isEmpty === false ? this.pauses : null;
  }

  /** Width of a column in pixels. */
  get step() {
    return Math.max(1, this.root.clientWidth - NAMES) / this.profile.columns;
  }

  paint() {
    const { names, cells } = this.heat;
    const width = this.root.clientWidth;
    if (width === 0 || this.selection === undefined) return;
    const rows = Math.max(1, names.length) + (this.marked === null ? 0 : 1);
    const context = sharp(this.canvas, width, rows * ROW + SCALE);
    const dark = !this.printed && matchMedia("(prefers-color-scheme: dark)").matches;
    context.fillStyle = this.colour("ground");
    context.fillRect(0, 0, width, rows * ROW + SCALE);
    context.font = FONT;
    context.textBaseline = "middle";
    const pixels = Math.min(this.profile.columns, Math.max(1, Math.floor(width - NAMES)));
    const bins = cells.map((row) => binned(row, pixels));
    const most = Math.max(1, ...bins.map((row) => Math.max(...row)));
    const step = (width - NAMES) / pixels;
    names.forEach((name, at) => {
      this.paintLane(context, name.length > 18 ? `${name.slice(0, 17)}…` : name, at * ROW, width);
      bins[at].forEach((count, column) => {
        if (count === 0) return;
        context.fillStyle = heatColour(Math.sqrt(count / most), dark);
        context.fillRect(NAMES + column * step, at * ROW, Math.max(1, step - (step > 4 ? 0.6 : 0)), ROW - 1);
      });
    });
    if (this.marked !== null) this.paintPauses(context, this.marked, (rows - 1) * ROW, width);
    this.paintScale(context, rows * ROW, width);
    this.paintRange(context, this.selection.range, rows * ROW, this.colour("accent"), "");
    this.paintRange(context, this.selection.base, rows * ROW, this.colour("mark"), "compare");
    if (document.activeElement === this.root) {
      context.strokeStyle = this.colour("ink");
      context.lineWidth = 2;
      context.strokeRect(NAMES + this.cursor * this.step, 1, Math.max(2, this.step), rows * ROW - 2);
    }
  }

  /**
   * The name and the ground of a row.
   * @param {CanvasRenderingContext2D} context
   * @param {string} name
   * @param {number} y
   * @param {number} width
   */
  paintLane(context, name, y, width) {
    context.fillStyle = this.colour("ink");
    context.fillText(name, 0, y + ROW / 2, NAMES - 6);
    context.fillStyle = this.colour("panel");
    context.fillRect(NAMES, y, width - NAMES, ROW - 1);
  }

  /**
   * A mark for each column with pauses: higher for a larger share of the time, by the JVM with the longest pauses. As in
   * the heat map, the root of the share makes short pauses visible.
   * @param {CanvasRenderingContext2D} context
   * @param {Pauses} pauses
   * @param {number} y
   * @param {number} width
   */
  paintPauses(context, pauses, y, width) {
    this.paintLane(context, "JVM pauses", y, width);
    context.fillStyle = this.colour("pause");
    const gap = this.step > 4 ? 0.6 : 0;
    for (const column of pauses.byColumn.keys()) {
      const height = Math.max(LOWEST, Math.round((ROW - 1) * Math.sqrt(pauses.shares[column])));
      context.fillRect(NAMES + column * this.step, y + ROW - 1 - height, Math.max(1, this.step - gap), height);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} y
   * @param {number} width
   */
  paintScale(context, y, width) {
    context.fillStyle = this.colour("soft");
    const every = Math.max(1, Math.ceil(90 / this.step));
    for (let column = 0; column < this.profile.columns; column += every) {
      const x = NAMES + column * this.step;
      if (x + 70 <= width || column === 0) context.fillText(this.time(column), x, y + SCALE / 2);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Range|null} range
   * @param {number} height
   * @param {string} colour
   * @param {string} word
   */
  paintRange(context, range, height, colour, word) {
    if (range === null) return;
    const [x, width] = [NAMES + range[0] * this.step, (range[1] - range[0]) * this.step];
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.setLineDash(word === "" ? [] : [4, 3]);
    context.strokeRect(x + 1, 1, Math.max(2, width - 2), height - 2);
    context.setLineDash([]);
    context.globalAlpha = 0.18;
    context.fillStyle = colour;
    context.fillRect(x, 0, width, height);
    context.globalAlpha = 1;
    if (word === "") return;
    context.fillStyle = this.colour("ground");
    context.fillRect(x, height, context.measureText(word).width + 6, SCALE);
    context.fillStyle = colour;
    context.fillText(word, x + 2, height + SCALE / 2);
  }

  /**
   * A colour of the style sheet, or of paper.
   * @param {string} name
   */
  colour(name) {
    return this.printed ? PAPER[name] : themed(name);
  }

  /** @param {number} column */
  time(column) {
    return clock(this.profile.start_ms, this.profile.msOf(column) - this.profile.start_ms);
  }

  /** @param {PointerEvent} event */
  columnAt(event) {
    return Math.max(0, Math.min(this.profile.columns - 1, Math.floor((event.offsetX - NAMES) / this.step)));
  }

  /** @param {PointerEvent} event */
  onPress(event) {
    this.dragging = this.cursor = this.columnAt(event);
    this.canvas.setPointerCapture(event.pointerId);
    this.choose(this.dragging, this.cursor, event.shiftKey ? "base" : this.which);
  }

  /** @param {PointerEvent} event */
  onMove(event) {
    const column = this.columnAt(event);
    if (this.dragging !== undefined) {
      if (column === this.cursor) return;
      this.cursor = column;
      this.choose(this.dragging, column, event.shiftKey ? "base" : this.which);
    }
    this.describeColumn(column, Math.floor(event.offsetY / ROW));
  }

  /**
   * @param {number} one
   * @param {number} two
   * @param {"range"|"base"} which
   */
  choose(one, two, which) {
    this.select(which, [Math.min(one, two), Math.max(one, two) + 1]);
  }

  /**
   * @param {number} column
   * @param {number} row
   */
  describeColumn(column, row) {
    const { names, cells } = this.heat;
    const parts = names.map((name, at) => `${name} ${grouped(cells[at][column])}`);
    if (this.marked !== null) parts.push(this.marked.describe(column));
    this.describe([this.time(column), row >= 0 && row < parts.length ? parts[row] : parts.join(", ")]);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const last = this.profile.columns - 1;
    const page = Math.max(1, Math.round(this.profile.columns / 10));
    const steps = /** @type {Record<string, number>} */ ({
      ArrowLeft: this.cursor - 1, ArrowRight: this.cursor + 1, Home: 0, End: last,
      PageUp: this.cursor - page, PageDown: this.cursor + page,
    });
    if (event.key in steps) {
      const before = this.cursor;
      this.cursor = Math.max(0, Math.min(last, steps[event.key]));
      if (event.shiftKey) {
        this.anchor ??= before;
        this.choose(this.anchor, this.cursor, this.which);
      } else {
        this.anchor = null;
      }
      this.describeColumn(this.cursor, -1);
    } else if (event.key === "Enter" || event.key === " ") {
      this.choose(this.cursor, this.cursor, this.which);
    } else if (event.key === "Escape") {
      this.select(this.which, null);
    } else return;
    event.preventDefault();
    this.paint();
  }
}

/**
 * Columns of a row summed into fewer.
 * @param {Float64Array} row
 * @param {number} bins
 * @returns {Float64Array}
 */
function binned(row, bins) {
  if (bins >= row.length) return row;
  const sums = new Float64Array(bins);
  row.forEach((count, at) => {
    sums[Math.floor((at * bins) / row.length)] += count;
  });
  return sums;
}
