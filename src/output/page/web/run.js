/** The run: warnings, where the samples went, the JVMs, and the limits that were reached. */

/** @import {Profile} from "./data.js" */
/** @import {Pauses} from "./pauses.js" */
/** @import {Range} from "./selection.js" */
import { element } from "./dom.js";
import { grouped } from "./numbers.js";

/**
 * @param {string[]} heads
 * @param {(string|number)[][]} rows numbers are aligned at the right
 * @returns {HTMLElement}
 */
function table(heads, rows) {
  const cell = (/** @type {string|number} */ value) =>
    element("td", { class: typeof value === "number" ? "number" : "wrap" }, typeof value === "number" ? grouped(value) : value);
  return element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head, at) => element("th", { scope: "col", class: typeof rows[0][at] === "number" ? "number" : null }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
}

/**
 * Where the names of a JVM come from.
 * @param {any} names
 * @returns {string}
 */
function source(names) {
  if (typeof names === "string") return names.replaceAll("_", " ");
  const [[kind, more]] = Object.entries(names);
  if (kind === "refused") return `refused: ${more.label}. ${more.hint}`;
  return `${kind.replaceAll("_", " ")}${more.ms === undefined ? "" : `, after ${grouped(more.ms)} ms`}`;
}

/**
 * @param {Profile} profile
 * @returns {HTMLElement}
 */
export function run(profile) {
  const { report, events } = profile;
  const parts = [];
  const warnings = [...(report?.warnings ?? [])];
  if (warnings.length > 0) parts.push(element("h2", {}, "Warnings"), element("ul", {}, ...warnings.map((text) => element("li", {}, text))));
  parts.push(element("h2", {}, "Where the samples went"));
  parts.push(table(["Event", "Samples taken", "In the profile", "Idle or not asked for", "Lost", "Missed"], events.map(({ title, accounts }) =>
    [title, accounts.ticks, accounts.kept, accounts.filtered, accounts.lost.reduce((sum, [, count]) => sum + count, 0), accounts.missed])));
  const lost = events.flatMap(({ title, accounts }) => accounts.lost.map(([reason, count]) => [title, reason, count]));
  if (lost.length > 0) parts.push(element("h2", {}, "Lost"), table(["Event", "Reason", "Samples"], lost));
  parts.push(element("section", { id: "run-pauses" }));
  if (report === null) {
    parts.push(element("p", {}, "There are no facts about the run: the profile comes from a file, from stored windows, or from a run that goes on."));
    return element("div", { class: "scroll run", tabindex: 0, role: "group", "aria-label": "Run" }, ...parts);
  }
  const jvms = report.jvms ?? [];
  if (jvms.length > 0) {
    parts.push(element("h2", {}, "JVMs"), table(["Process", "JVM", "Version", "Names from", "Samples", "With Java"], jvms.map((/** @type {any} */ jvm) =>
      [String(jvm.pid), jvm.name, jvm.version, source(jvm.names), jvm.ticks, jvm.java_ticks])));
  }
  const states = [report, ...(report.events ?? [])].flatMap((of) => of.waits?.states ?? []);
  if (states.length > 0) {
    parts.push(element("h2", {}, "Waiting time, measured"), table(["State", "Seconds", "Samples"], states.map((/** @type {any} */ of) =>
      [of.state, Math.round(of.ns / 1e9), of.samples])));
  }
  const groups = (report.groups ?? []).filter((/** @type {any} */ group) => group.periods > 0);
  if (groups.length > 0) {
    parts.push(element("h2", {}, "CPU throttling"), table(["Cgroup", "Periods", "Throttled periods", "Throttled, ms"], groups.map((/** @type {any} */ group) =>
      [group.path, group.periods, group.throttled_periods, Math.round(group.throttled_usec / 1000)])));
  }
  if (profile.limits.length > 0) {
    parts.push(element("h2", {}, "Limits that were reached"), table(["Of", "Left out", "What", "Effect"], profile.limits.map((row) =>
      [row.subject, row.left_out, row.what, row.advice])));
  }
  parts.push(element("h2", {}, "Run"), table(["Fact", "Value"], [
    ["Target", report.target], ["Command", report.command], ["Host", report.host], ["Kernel", report.kernel],
    ["CPUs", String(report.cpus)], ["Start", report.start], ["Duration", `${report.duration_s.toFixed(1)} s`],
    ["Version", report.version],
  ]));
  return element("div", { class: "scroll run", tabindex: 0, role: "group", "aria-label": "Run" }, ...parts);
}

/**
 * The pauses of the selected JVMs: one row each, and the sum of several.
 * @param {Pauses} pauses
 * @param {Range|null} range
 * @param {string} time the range in words
 * @returns {HTMLElement[]}
 */
export function pauseTable(pauses, range, time) {
  const jvms = pauses.byJvm(range);
  if (pauses.isEmpty) return [];
  const title = element("h2", {}, range === null ? "JVM pauses" : `JVM pauses, ${time}`);
  if (jvms.length === 0) return [title, element("p", {}, "No JVM stood still in this time.")];
  const all = jvms.length > 1 ? [...jvms, { name: "all", ...pauses.total(range) }] : jvms;
  const ms = (/** @type {number} */ usec) => Math.round(usec / 100) / 10;
  return [title, table(["JVM", "Safepoints", "At safepoints, ms", "Collections", "Of collections, ms"], all.map((jvm) =>
    [jvm.name, jvm.safepoints, ms(jvm.safepoint_usec), jvm.collections, ms(jvm.collection_usec)]))];
}
