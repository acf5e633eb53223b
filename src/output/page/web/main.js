/** The page: it reads the profile, and shows it again whenever the selection or the view changes. */

/** @import {Range} from "./selection.js" */
/** @import {View} from "./address.js" */
import { nodeOf, pathOf, read, write } from "./address.js";
import { Profile, unpack } from "./data.js";
import { byId, element } from "./dom.js";
import { Facets } from "./facets.js";
import { FlameGraph } from "./flame.js";
import { Functions } from "./functions.js";
import { callees, callers } from "./groups.js";
import { Lines } from "./lines.js";
import { Live } from "./live.js";
import { grouped, percent } from "./numbers.js";
import { Pauses, pauseText } from "./pauses.js";
import { pauseTable, run } from "./run.js";
import { Selection } from "./selection.js";
import { Shown } from "./shown.js";
import { Strip } from "./strip.js";
import { CallTree } from "./tree.js";

const TABS = [
  ["flame", "Flame graph"], ["tree", "Call tree"], ["callers", "Callers"], ["functions", "Functions"],
  ["lines", "Lines"], ["run", "Run"],
];

const KEYS = [
  ["1 … 6", "show flame graph, call tree, callers, functions, lines, run"],
  ["/", "search; text in any case, or a /regular expression/"],
  ["t", "go to the time strip: ← → move, Shift + ← → select a range, Escape clears it"],
  ["c", "select the range to compare with, or the range, by the next keys"],
  ["g", "go to the view: ← → ↑ ↓ move between frames or rows"],
  ["Enter", "zoom to the frame; unfold the row"],
  ["Escape, Backspace", "zoom out to the whole, or by one frame"],
  ["f", "show the function of the frame with its callers and callees"],
  ["r", "draw the root at the top or at the bottom"],
  ["?", "show these keys"],
];

class Page {
  /** @param {Profile} profile */
  constructor(profile) {
    this.profile = profile;
    this.selection = new Selection(profile);
    /** The next frame in which a new range is shown. @type {number|undefined} */
    this.pending = undefined;
    this.rowsAreChosen = false;
    /** @type {View} */
    this.view = { tab: "flame", zoom: 0, rootUp: true, query: "", chosen: -1 };
    const choose = (/** @type {number} */ symbol) => this.chooseFunction(symbol);
    const describe = (/** @type {string[]} */ text) => this.describe(text);
    this.flame = new FlameGraph(profile, { zoom: (node) => this.zoom(node), describe, choose });
    this.tree = new CallTree("Call tree: what each frame calls", callees, choose);
    this.callers = new CallTree("Callers: where samples end, and who calls it", callers, choose);
    this.functions = new Functions(choose);
    this.lines = new Lines(choose);
    this.facets = new Facets(byId("facets"), this.selection, () => this.update());
    this.strip = new Strip(byId("strip"), profile, (which, range) => this.selectTime(which, range), describe);
    this.buildHead();
    this.buildTabs();
    this.showProfile();
    this.listen();
    this.restore();
  }

  buildHead() {
    if (matchMedia("(max-width: 760px)").matches) byId("selection").open = false;
    byId("rows").addEventListener("change", () => {
      this.rowsAreChosen = true;
      this.showStrip();
    });
    byId("keys").append(...KEYS.map(([key, what]) => element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, key)), element("td", {}, what))));
  }

  /** Shows what depends on the profile only. */
  showProfile() {
    const { profile, selection } = this;
    byId("title").textContent = document.title = profile.title;
    byId("time").hidden = profile.columns < 2;
    const rows = byId("rows");
    const titles = ["all", ...selection.dimensions.map((dimension) => dimension.title)];
    if ([...rows.options].map((option) => option.text).join() !== titles.join()) {
      const chosen = rows.selectedOptions[0]?.text;
      rows.replaceChildren(...titles.map((title, at) => element("option", { value: at - 1 }, title)));
      rows.value = String(Math.max(0, titles.indexOf(chosen)) - 1);
    }
    byId("panel-run").replaceChildren(run(profile));
  }

  /**
   * Shows a newer profile. View and selection stay, as far as the profile has them.
   * @param {Profile} profile
   */
  replace(profile) {
    const old = this.profile;
    const address = write(this.selection, this.view);
    const current = pathOf(old, this.flame.current);
    const { which } = this.strip;
    const [range, base] = [this.selection.range, this.selection.base].map((one) => moved(one, old, profile));
    this.profile = this.strip.profile = profile;
    this.selection = this.facets.selection = new Selection(profile);
    read(address, this.selection, this.view, TABS.map(([name]) => name));
    [this.selection.range, this.selection.base, this.strip.which] = [range, base, which];
    this.flame.follow(profile, this.view.zoom, nodeOf(profile, current));
    const panel = byId("panel-run");
    const scrolled = panel.firstElementChild.scrollTop;
    this.showProfile();
    this.update();
    panel.firstElementChild.scrollTop = scrolled;
  }

  /**
   * Compares two ranges of time.
   * @param {{range: Range, base: Range}} ranges
   */
  compare({ range, base }) {
    [this.selection.range, this.selection.base] = [range, base];
    this.update();
  }

  buildTabs() {
    this.legend = element("div", { class: "legend" });
    this.turn = element("button", { type: "button", id: "turn", click: () => this.turnRound() });
    this.reset = element("button", { type: "button", id: "reset", click: () => this.zoom(0) }, "Reset zoom");
    const flame = [element("div", { class: "bar" }, this.turn, this.reset, this.legend), this.flame.root];
    const parts = { flame, tree: [this.tree.root], callers: [this.callers.root], functions: [this.functions.root], lines: [this.lines.root], run: [] };
    for (const [name, title] of TABS) {
      byId("tabs").append(element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, click: () => this.open(name) }, title));
      byId("panels").append(element("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` }, .../** @type {any} */ (parts)[name]));
    }
  }

  listen() {
    byId("help-button").addEventListener("click", () => byId("help").showModal());
    byId("clear-time").addEventListener("click", () => {
      this.selection.base = null;
      this.selectTime("range", null);
    });
    for (const radio of document.querySelectorAll("input[name=range]")) {
      radio.addEventListener("change", (event) => {
        this.strip.which = /** @type {any} */ (event.target).value;
      });
    }
    byId("search").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
    byId("find").addEventListener("input", (/** @type {any} */ event) => {
      this.view.query = event.target.value;
      this.update();
    });
    byId("tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.onTabKey(event));
    document.addEventListener("keydown", (event) => this.onKey(event));
    window.addEventListener("hashchange", () => {
      if (location.hash.slice(1) !== this.address) this.restore();
    });
  }

  restore() {
    read(location.hash.slice(1), this.selection, this.view, TABS.map(([name]) => name));
    if (location.hash.length < 2 && this.profile.compare !== undefined) {
      this.selection.range = this.profile.compare.range;
      this.selection.base = this.profile.compare.base;
    }
    byId("find").value = this.view.query;
    this.update();
  }

  /** Shows everything anew. */
  update() {
    this.shown = new Shown(this.profile, this.selection, this.view.query);
    this.pauses = new Pauses(this.selection);
    this.facets.show();
    this.showStrip();
    this.showPauses();
    this.showFacts();
    this.render();
  }

  /** Shows the open view. */
  render() {
    const { view } = this;
    const shown = /** @type {Shown} */ (this.shown);
    for (const [name] of TABS) {
      const isOpen = name === view.tab;
      const tab = byId(`tab-${name}`);
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
      byId(`panel-${name}`).hidden = !isOpen;
    }
    if (view.tab === "flame") {
      this.showLegend();
      this.flame.show(shown, view.zoom, view.rootUp);
    } else if (view.tab === "tree") this.tree.show(shown);
    else if (view.tab === "callers") this.callers.show(shown);
    else if (view.tab === "functions") this.functions.show(shown, view.chosen);
    else if (view.tab === "lines") this.lines.show(shown);
    this.address = write(this.selection, view);
    history.replaceState(null, "", `#${this.address}`);
    this.address = location.hash.slice(1);
  }

  /** Until the user chooses rows, they are the states of waiting threads, and processes otherwise. */
  chooseRows() {
    if (this.rowsAreChosen) return;
    const waits = this.profile.events[this.selection.event].name === "wait";
    const names = waits ? ["state", "process", "thread"] : ["process", "thread"];
    const wanted = names.map((name) => this.selection.dimensions.findIndex((one) => one.name === name));
    byId("rows").value = String(wanted.find((at) => at >= 0) ?? -1);
  }

  showStrip() {
    if (this.profile.columns < 2) return;
    this.chooseRows();
    const at = Number(byId("rows").value);
    this.strip.show(this.selection, at < 0 ? null : this.selection.dimensions[at], /** @type {Pauses} */ (this.pauses));
    const { range, base } = this.selection;
    const parts = [this.rangeText(range)];
    if (base !== null) parts.push(`compared with ${this.rangeText(base)}`);
    byId("ranges").textContent = parts.join(", ");
    byId("clear-time").disabled = range === null && base === null;
  }

  /**
   * @param {Range|null} range
   * @returns {string}
   */
  rangeText(range) {
    const { compare } = this.profile;
    const isAll = (/** @type {Range|undefined} */ of) => of !== undefined && range?.[0] === of[0] && range[1] === of[1];
    if (range === null) return "whole time";
    if (isAll(compare?.range)) return "all after";
    if (isAll(compare?.base)) return "all before";
    return `${this.strip.time(range[0])} – ${this.strip.time(range[1])}`;
  }

  /** How long the selected JVMs stood still in the selected time. */
  showPauses() {
    const pauses = /** @type {Pauses} */ (this.pauses);
    const { range, base } = this.selection;
    const text = (/** @type {Range|null} */ of) => pauseText(pauses.total(of));
    byId("pauses").textContent = pauses.isEmpty ? "" : `JVM pauses: ${text(range)}${base === null ? "" : `, compared with ${text(base)}`}`;
    byId("run-pauses").replaceChildren(...pauseTable(pauses, range, this.rangeText(range)));
  }

  showFacts() {
    const shown = /** @type {Shown} */ (this.shown);
    const { accounts } = shown.event;
    const lost = accounts.lost.reduce((sum, [, count]) => sum + count, 0);
    const parts = [this.selection.isWhole ? `${grouped(accounts.kept)} samples` : `${grouped(shown.sums.whole)} of ${grouped(accounts.kept)} samples`];
    if (accounts.period_ns > 0) parts[0] += ` at ${(1e9 / accounts.period_ns).toFixed(0)} Hz`;
    if ((accounts.longest_period_ns ?? 0) > accounts.period_ns) parts[0] += " (those of lower rates count for more)";
    if (this.profile.events.length > 1) parts.unshift(shown.event.title);
    if ((accounts.one_in ?? 0) > 1) parts.push(`one in ${grouped(accounts.one_in ?? 0)}`);
    const facts = byId("facts");
    facts.replaceChildren(parts.join(", "), ", ");
    const warnings = this.profile.report?.warnings?.length ?? 0;
    facts.append(element("span", { class: lost > 0 ? "warn" : null }, lost > 0 ? `${grouped(lost)} lost` : "none lost"));
    if (accounts.missed > 0) facts.append(`, ${grouped(accounts.missed)} missed`);
    if (warnings > 0) facts.append(", ", element("span", { class: "warn" }, `${warnings} ${warnings === 1 ? "warning" : "warnings"} (see Run)`));
    if (lost > 0 && !this.selection.isWhole) facts.append("; lost samples have no process or time, so this selection leaves them out");
    byId("found").textContent = shown.matches === null ? "" : `${grouped(shown.found)} samples, ${percent(shown.found, shown.whole) || "0 %"}`;
  }

  showLegend() {
    const { profile, view } = this;
    const isDiff = this.selection.base !== null;
    const kinds = /** @type {Shown} */ (this.shown).kinds().filter((kind) => kind.legend !== null);
    const words = isDiff
      ? [["+ more than before", "rgb(240,108,108)"], ["− less than before", "rgb(108,178,245)"]]
      : kinds.map((kind) => [kind.inlined ? `${kind.language} inlined (broken edge)` : /** @type {string} */ (kind.legend), kind.colour]);
    this.legend?.replaceChildren(...words.map(([word, colour]) => {
      const item = element("span", {}, word);
      item.style.setProperty("--colour", colour);
      return item;
    }));
    if (this.turn) this.turn.textContent = view.rootUp ? "Draw the root at the bottom" : "Draw the root at the top";
    if (this.reset) this.reset.disabled = view.zoom === 0;
  }

  /** @param {string} tab */
  open(tab) {
    this.view.tab = tab;
    this.render();
  }

  /** @param {number} node */
  zoom(node) {
    this.view.zoom = node;
    this.render();
    this.flame.describe(node);
  }

  turnRound() {
    this.view.rootUp = !this.view.rootUp;
    this.render();
  }

  /** @param {number} symbol */
  chooseFunction(symbol) {
    const id = symbol < 0 ? -1 : this.profile.functionOf[symbol];
    if (id < 0) return this.describe(["This frame is not code: it has no callers and callees."]);
    this.view.chosen = id;
    this.open("functions");
  }

  /**
   * @param {"range"|"base"} which
   * @param {Range|null} range
   */
  selectTime(which, range) {
    this.selection[which] = range;
    this.pending ??= requestAnimationFrame(() => {
      this.pending = undefined;
      this.update();
    });
  }

  /** @param {string[]} text the name, and what is known about it */
  describe([name, ...more]) {
    byId("detail").replaceChildren(...(name === undefined ? [] : [element("b", {}, name), " ", more.join("; ")]));
  }

  /** @param {KeyboardEvent} event */
  onTabKey(event) {
    const at = TABS.findIndex(([name]) => name === this.view.tab);
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const [name] = TABS[(at + step + TABS.length) % TABS.length];
    this.open(name);
    byId(`tab-${name}`).focus();
    event.preventDefault();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || byId("help").open) return;
    if (target.matches("input[type=search], select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const tab = TABS[Number(event.key) - 1];
    if (tab !== undefined) this.open(tab[0]);
    else if (event.key === "/") byId("find").focus();
    else if (event.key === "t") byId("strip").focus();
    else if (event.key === "g") /** @type {HTMLElement|null} */ (document.querySelector(`#panel-${this.view.tab} [tabindex="0"]`))?.focus();
    else if (event.key === "c") this.switchRange();
    else if (event.key === "r") this.turnRound();
    else if (event.key === "?") byId("help").showModal();
    else if (event.key === "Escape" && this.view.zoom > 0) this.zoom(0);
    else return;
    event.preventDefault();
  }

  switchRange() {
    const other = /** @type {HTMLInputElement} */ (document.querySelector("input[name=range]:not(:checked)"));
    other.checked = true;
    this.strip.which = /** @type {any} */ (other).value;
  }
}

/**
 * A range of the same time in another profile; `null` if the profile does not have this time.
 * @param {Range|null} range
 * @param {Profile} from
 * @param {Profile} to
 * @returns {Range|null}
 */
function moved(range, from, to) {
  if (range === null) return null;
  const [begin, end] = [to.columnAt(from.msOf(range[0])), to.columnAt(from.msOf(range[1] - 1) + from.column_ms)];
  return begin < end ? [begin, end] : null;
}

/** @param {Profile} profile */
function open(profile) {
  const page = new Page(profile);
  // Tests and people at the console look at the numbers through it.
  Object.assign(window, { jbpfProf: page });
  return page;
}

try {
  const began = performance.now();
  const text = byId("profile").textContent;
  const { live } = text.startsWith('{"live"') ? JSON.parse(text) : { live: undefined };
  if (live === undefined) {
    open(new Profile(await unpack(text)));
    document.documentElement.dataset.opened = (performance.now() - began).toFixed(0);
  } else {
    byId("facts").textContent = "No samples yet.";
    /** @type {Page|undefined} */
    let page;
    new Live(live, (profile, compared) => {
      if (page === undefined) page = open(profile);
      else page.replace(profile);
      if (compared !== null) page.compare(compared);
    });
  }
} catch (error) {
  byId("facts").textContent = `This page cannot show the profile: ${error instanceof Error ? error.message : error}`;
}
