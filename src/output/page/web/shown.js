/** What all views show: the sums of the range, those of the range to compare with, and what was searched. */

/** @import {Kind, Profile, SampledEvent} from "./data.js" */
/** @import {Selection, Sums} from "./selection.js" */
import { grouped, percent, points, span } from "./numbers.js";

export class Shown {
  /**
   * @param {Profile} profile
   * @param {Selection} selection
   * @param {string} query
   */
  constructor(profile, selection, query) {
    this.profile = profile;
    this.selection = selection;
    this.sums = selection.sums(selection.range);
    /** @type {Sums|null} */
    this.base = selection.base === null ? null : selection.sums(selection.base);
    this.query = query;
    /** @type {Kind[]|undefined} */
    this.used = undefined;
    /** For each symbol whether the search finds its name. */
    this.matches = matching(profile, query);
    this.found = this.matches === null ? 0 : this.samplesWith(this.matches);
  }

  /**
   * The kinds of the frames that have samples.
   * @returns {Kind[]}
   */
  kinds() {
    if (this.used !== undefined) return this.used;
    const { nodes, kinds, symbol, symbolKind } = this.profile;
    const symbols = new Uint8Array(symbolKind.length);
    for (let node = 1; node < nodes; node++) if (this.sums.total[node] > 0) symbols[symbol[node]] = 1;
    const used = new Set(symbolKind.filter((_, at) => symbols[at] === 1));
    return (this.used = kinds.filter((_, at) => used.has(at)));
  }

  /** @returns {SampledEvent} */
  get event() {
    return this.profile.events[this.selection.event];
  }

  /** Lost samples. They have no stack, time or process, so only the whole profile can show them. */
  get lost() {
    return this.selection.isWhole ? this.event.accounts.lost.reduce((sum, [, count]) => sum + count, 0) : 0;
  }

  /** The whole for shares: the selected samples and the lost ones. */
  get whole() {
    return this.sums.whole + this.lost;
  }

  /**
   * Samples with a matching frame anywhere in their stack; each counts once.
   * @param {Uint8Array} matches by symbol
   * @returns {number}
   */
  samplesWith(matches) {
    const { nodes, symbol, end } = this.profile;
    let sum = 0;
    for (let node = 1; node < nodes; ) {
      if (matches[symbol[node]]) {
        sum += this.sums.total[node];
        node = end[node];
      } else {
        node++;
      }
    }
    return sum;
  }

  /**
   * @param {number} symbol −1 for the root
   * @returns {boolean}
   */
  isFound(symbol) {
    return this.matches !== null && symbol >= 0 && this.matches[symbol] === 1;
  }

  /**
   * The change of a share against the range to compare with: −1 to 1.
   * @param {number} count
   * @param {number} before
   * @returns {number}
   */
  change(count, before) {
    const was = this.base !== null && this.base.whole > 0 ? before / this.base.whole : 0;
    return (this.whole > 0 ? count / this.whole : 0) - was;
  }

  /**
   * A number of samples as text: with its share, its time, and its change.
   * @param {number} count
   * @param {number} [before]
   * @returns {string}
   */
  describe(count, before) {
    const { period_ns } = this.event.accounts;
    const parts = [`${grouped(count)} samples`, percent(count, this.whole)];
    if (period_ns > 0) parts.push(span(count * period_ns));
    if (this.base !== null && before !== undefined) parts.push(`${points(this.change(count, before))} points`);
    return parts.filter((part) => part !== "").join(", ");
  }
}

/**
 * Matches names with a text, whatever its case, or with `/a regular expression/`. `null` if nothing is searched.
 * @param {Profile} profile
 * @param {string} query
 * @returns {Uint8Array|null}
 */
function matching(profile, query) {
  if (query === "") return null;
  const matches = new Uint8Array(profile.symbolName.length);
  const pattern = /^\/(.+)\/$/s.exec(query);
  let test = (/** @type {string} */ name) => name.toLowerCase().includes(query.toLowerCase());
  if (pattern !== null) {
    try {
      const expression = new RegExp(pattern[1], "u");
      test = (name) => expression.test(name);
    } catch {
      return matches;
    }
  }
  for (let symbol = 0; symbol < matches.length; symbol++) matches[symbol] = test(profile.nameOf(symbol)) ? 1 : 0;
  return matches;
}
