/** Numbers as text. */

const GROUPED = new Intl.NumberFormat("en-US");

/**
 * @param {number} count
 * @returns {string}
 */
export function grouped(count) {
  return GROUPED.format(count);
}

/**
 * A share of a whole, in percent.
 * @param {number} part
 * @param {number} whole
 * @returns {string}
 */
export function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(2)} %` : "";
}

/**
 * A change of a share (−1 to 1), in points of a percent.
 * @param {number} change
 * @returns {string}
 */
export function points(change) {
  const value = 100 * change;
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}

/**
 * A time in nanoseconds.
 * @param {number} ns
 * @returns {string}
 */
export function span(ns) {
  if (ns >= 60e9) return `${Math.floor(ns / 60e9)} min ${Math.round((ns % 60e9) / 1e9)} s`;
  if (ns >= 1e9) return `${(ns / 1e9).toPrecision(3)} s`;
  if (ns >= 1e6) return `${(ns / 1e6).toPrecision(3)} ms`;
  return `${(ns / 1e3).toPrecision(3)} µs`;
}

/**
 * A time in microseconds as milliseconds: whole ones from 10 ms on.
 * @param {number} usec
 * @returns {string}
 */
export function milliseconds(usec) {
  return usec < 10_000 ? (usec / 1000).toFixed(1) : grouped(Math.round(usec / 1000));
}

/**
 * The time of day of a column, or its time since the beginning if the profile has no wall clock.
 * @param {number} start_ms
 * @param {number} after_ms
 * @returns {string}
 */
export function clock(start_ms, after_ms) {
  if (start_ms === 0) return `${after_ms / 1000} s`;
  return new Date(start_ms + after_ms).toLocaleTimeString("en-GB");
}
