/** The flame graph, on a canvas. */

/** @import {Profile} from "./data.js" */
/** @import {Shown} from "./shown.js" */
import { changeColour, textColour } from "./colour.js";
import { element, sharp, themed } from "./dom.js";
import { LOST, Layout, NARROW } from "./layout.js";
import { grouped } from "./numbers.js";

/** The height of a row in pixels. */
const ROW = 18;
const FONT = '11.5px ui-monospace, "DejaVu Sans Mono", monospace';
/** The longest canvas that is printed, in pixels. */
const LONGEST = 12000;

/**
 * The canvas while a picture is drawn: the width of a letter, and colours of the style sheet.
 * @typedef {{context: CanvasRenderingContext2D, letter: number, mark: string, ink: string}} Pen
 */

/**
 * @typedef {{zoom: (node: number) => void, describe: (text: string[]) => void, choose: (symbol: number) => void}} FlameEvents
 */

export class FlameGraph {
  /**
   * @param {Profile} profile
   * @param {FlameEvents} events
   */
  constructor(profile, events) {
    this.profile = profile;
    this.events = events;
    /** @type {Map<string, string>} */
    this.inks = new Map();
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.space = element("div", {}, this.canvas);
    this.root = element("div", {
      class: "scroll flame", tabindex: 0, role: "application", "aria-roledescription": "flame graph",
      "aria-label": "Flame graph. Arrow keys move between frames, Enter zooms, Escape zooms out, F shows the function.",
    }, this.space);
    /** The node that the keys are at. */
    this.current = 0;
    this.zoom = 0;
    this.rootUp = true;
    /** @type {Layout|null} */
    this.layout = null;
    /** @type {Shown|undefined} */
    this.shown = undefined;
    /** Of all rows, in pixels. */
    this.height = 0;
    this.listen();
  }

  listen() {
    this.root.addEventListener("scroll", () => this.paint());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("pointermove", (event) => this.describe(this.boxAt(event)));
    this.canvas.addEventListener("click", (event) => {
      const node = this.boxAt(event);
      if (node >= 0) {
        this.current = node;
        this.events.zoom(node);
      }
    });
    new ResizeObserver(() => this.arrange()).observe(this.root);
    window.addEventListener("beforeprint", () => this.paint(true));
    window.addEventListener("afterprint", () => this.paint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
  }

  /**
   * @param {Shown} shown
   * @param {number} zoom
   * @param {boolean} rootUp
   */
  show(shown, zoom, rootUp) {
    const turned = this.rootUp !== rootUp || this.layout === null;
    if (this.zoom !== zoom) this.current = zoom;
    this.shown = shown;
    this.zoom = zoom;
    this.rootUp = rootUp;
    this.arrange();
    if (turned) this.root.scrollTop = rootUp ? 0 : this.height;
  }

  /**
   * Goes on with another profile, where the zoom and the node of the keys have other numbers.
   * @param {Profile} profile
   * @param {number} zoom
   * @param {number} current
   */
  follow(profile, zoom, current) {
    [this.profile, this.zoom, this.current] = [profile, zoom, current];
  }

  arrange() {
    if (this.shown === undefined || this.root.clientWidth === 0) return;
    this.layout = new Layout(this.shown, this.zoom, this.root.clientWidth);
    this.height = this.layout.rows.length * ROW + 2;
    this.space.style.height = `${Math.max(this.height, this.root.clientHeight)}px`;
    this.paint();
  }

  /**
   * The top of a level's row in the whole picture.
   * @param {number} level
   * @returns {number}
   */
  top(level) {
    const height = Math.max(this.height, this.root.clientHeight);
    return this.rootUp ? level * ROW : height - 2 - (level + 1) * ROW;
  }

  /** @param {boolean} [whole] draws all rows, for the printer */
  paint(whole = false) {
    const { layout } = this;
    if (layout === null || this.root.clientHeight === 0) return;
    const height = whole ? Math.min(this.height, LONGEST) : this.root.clientHeight;
    const context = sharp(this.canvas, layout.width, height);
    const scrolled = whole ? 0 : this.root.scrollTop;
    context.fillStyle = whole ? "#ffffff" : themed("ground");
    context.fillRect(0, 0, layout.width, height);
    context.font = FONT;
    context.textBaseline = "middle";
    /** @type {Pen} */
    const pen = { context, letter: context.measureText("m").width, mark: themed("mark"), ink: themed("ink") };
    layout.rows.forEach((row, level) => {
      const y = this.top(level) - scrolled;
      if (y < -ROW || y > height) return;
      for (let at = 0; at < row.node.length; at++) this.paintBox(pen, row.node[at], row.x[at], y, row.width[at]);
    });
    if (document.activeElement === this.root) this.paintFocus(context, scrolled);
  }

  /**
   * @param {Pen} pen
   * @param {number} node
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  paintBox(pen, node, x, y, width) {
    const { context } = pen;
    const shown = /** @type {Shown} */ (this.shown);
    const found = shown.matches !== null && node > 0 && shown.isFound(this.profile.symbol[node]);
    const faded = shown.matches !== null && !found;
    const inner = width > 3 ? width - 0.8 : width;
    const colour = this.colourOf(node);
    context.fillStyle = colour;
    if (faded) context.globalAlpha = 0.45;
    context.fillRect(x, y, inner, ROW - 1);
    if (faded) context.globalAlpha = 1;
    if (found) {
      context.fillStyle = pen.mark;
      context.fillRect(x, y + ROW - 4, inner, 3);
    }
    if (width <= 4) return;
    if (node > 0 && this.profile.kindOf(node).inlined) {
      // Inlined code has no frame of its own: a broken edge on the side of its caller.
      context.fillStyle = "#00000090";
      const edge = this.rootUp ? y : y + ROW - 3;
      for (let dash = 0; dash < inner; dash += 8) context.fillRect(x + dash, edge, Math.min(4, inner - dash), 1.5);
    }
    const letters = Math.floor((width - 6) / pen.letter);
    if (letters < 2) return;
    const text = this.textOf(node);
    let ink = this.inks.get(colour);
    if (ink === undefined) this.inks.set(colour, (ink = textColour(colour)));
    context.fillStyle = faded ? pen.ink : ink;
    context.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, x + 3, y + ROW / 2, width - 4);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} scrolled
   */
  paintFocus(context, scrolled) {
    const level = this.profile.depth[this.current];
    const row = this.layout?.rows[level];
    const at = row === undefined ? -1 : row.node.indexOf(this.current);
    if (row === undefined || at < 0) return;
    context.strokeStyle = "#000000";
    context.lineWidth = 4;
    const box = /** @type {const} */ ([row.x[at] + 2, this.top(level) - scrolled + 2, Math.max(3, row.width[at] - 4), ROW - 5]);
    context.strokeRect(...box);
    context.strokeStyle = "#ffffff";
    context.lineWidth = 2;
    context.strokeRect(...box);
  }

  /** @param {number} node */
  colourOf(node) {
    const shown = /** @type {Shown} */ (this.shown);
    if (node <= 0) return "rgb(200,200,200)";
    if (shown.base === null) return this.profile.colours[this.profile.symbol[node]];
    return changeColour(shown.change(shown.sums.total[node], shown.base.total[node]));
  }

  /** @param {number} node */
  textOf(node) {
    if (node === NARROW) return "…";
    if (node === LOST) return "[lost]";
    const shown = /** @type {Shown} */ (this.shown);
    if (node < LOST) return `[${shown.event.accounts.lost[LOST - 1 - node][0]}]`;
    const name = this.profile.nameOf(node === 0 ? -1 : this.profile.symbol[node]);
    const suffix = node > 0 && this.profile.kindOf(node).interpreted ? "_[0]" : "";
    if (shown.base === null || node === 0) return name + suffix;
    const change = shown.change(shown.sums.total[node], shown.base.total[node]) * 100;
    return `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)} ${name}${suffix}`;
  }

  /** @param {number} node */
  describe(node) {
    const shown = this.shown;
    if (shown === undefined || this.layout === null) return;
    if (node === Number.MIN_SAFE_INTEGER) return this.events.describe([]);
    if (node === NARROW) return this.events.describe(["frames that are too narrow to be drawn: zoom in to see them"]);
    if (node === LOST) return this.events.describe(["[lost]", shown.describe(shown.lost)]);
    if (node < LOST) {
      return this.events.describe([this.textOf(node), shown.describe(shown.event.accounts.lost[LOST - 1 - node][1])]);
    }
    const count = node === 0 ? shown.whole : shown.sums.total[node];
    const parts = [shown.describe(count, shown.base?.total[node])];
    if (shown.sums.own[node] > 0) parts.push(`${grouped(shown.sums.own[node])} in itself`);
    if (node > 0) {
      const kind = this.profile.kindOf(node);
      parts.push([kind.inlined ? "inlined" : "", kind.interpreted ? "interpreted" : "", kind.language || kind.name].filter(Boolean).join(" "));
    }
    this.events.describe([this.textOf(node), parts.join("; ")]);
  }

  /**
   * The node at the pointer; the smallest number if there is none.
   * @param {MouseEvent} event
   * @returns {number}
   */
  boxAt(event) {
    const layout = this.layout;
    if (layout === null) return Number.MIN_SAFE_INTEGER;
    const y = event.offsetY + this.root.scrollTop;
    const level = this.rootUp ? Math.floor(y / ROW) : Math.floor((this.top(0) + ROW - y) / ROW);
    const at = layout.at(level, event.offsetX);
    return at < 0 ? Number.MIN_SAFE_INTEGER : layout.rows[level].node[at];
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const moves = /** @type {Record<string, () => number>} */ ({
      ArrowLeft: () => this.beside(-1),
      ArrowRight: () => this.beside(1),
      ArrowUp: () => (this.rootUp ? this.profile.parent[this.current] : this.above()),
      ArrowDown: () => (this.rootUp ? this.above() : this.profile.parent[this.current]),
      Home: () => this.zoom,
    });
    if (event.key in moves) {
      this.current = moves[event.key]();
      this.scrollTo(this.current);
      this.describe(this.current);
    } else if (event.key === "Enter") this.events.zoom(this.current);
    else if (event.key === "Escape" && this.zoom > 0) this.events.zoom(0);
    else if (event.key === "Backspace" && this.zoom > 0) this.events.zoom(this.profile.parent[this.zoom]);
    else if (event.key === "f" && this.current > 0) this.events.choose(this.profile.symbol[this.current]);
    else return;
    event.preventDefault();
    this.paint();
  }

  /**
   * The next visible frame of the same row.
   * @param {number} step
   * @returns {number}
   */
  beside(step) {
    const row = this.layout?.rows[this.profile.depth[this.current]];
    if (row === undefined) return this.current;
    let at = row.node.indexOf(this.current) + step;
    while (at >= 0 && at < row.node.length && row.node[at] < 0) at += step;
    return row.node[at] ?? this.current;
  }

  /** The widest frame that the current one calls. */
  above() {
    const { end } = this.profile;
    let best = this.current;
    for (let child = this.current + 1; child < end[this.current]; child = end[child]) {
      if (best === this.current || /** @type {Layout} */ (this.layout).weight(child) > /** @type {Layout} */ (this.layout).weight(best)) best = child;
    }
    const row = this.layout?.rows[this.profile.depth[best]];
    return row !== undefined && row.node.includes(best) ? best : this.current;
  }

  /** @param {number} node */
  scrollTo(node) {
    const top = this.top(this.profile.depth[node]);
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + ROW > this.root.scrollTop + this.root.clientHeight) this.root.scrollTop = top + ROW - this.root.clientHeight;
  }
}
