/** Colours: of kinds as in every picture of jbpf-prof, of changes, and of the heat map. */

/** @import {Kind} from "./data.js" */

/**
 * The colours of all symbols, as in src/output/palette.rs: the kind's, a little lighter or darker for each name.
 * @param {Kind[]} kinds
 * @param {{kind: number[], shade: number[]}} symbols
 * @returns {string[]}
 */
export function colours(kinds, symbols) {
  return symbols.kind.map((kind, symbol) => {
    const [r, g, b] = parts(kinds[kind].colour).map((part) => clamp(part + symbols.shade[symbol] - 14));
    return `rgb(${r},${g},${b})`;
  });
}

/**
 * @param {string} colour `#rrggbb`
 * @returns {number[]}
 */
function parts(colour) {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}

/** @param {number} part */
function clamp(part) {
  return Math.max(0, Math.min(255, part));
}

/**
 * The colour of a change of a share: red for more, blue for less, stronger for larger changes.
 * @param {number} change −1 to 1
 * @returns {string}
 */
export function changeColour(change) {
  const strength = Math.min(1, Math.sqrt(Math.abs(change) * 5));
  const fade = Math.round(238 - 130 * strength);
  return change > 0 ? `rgb(240,${fade},${fade})` : `rgb(${fade},${Math.round(238 - 60 * strength)},245)`;
}

/**
 * Black or white: the one with more contrast to this colour.
 * @param {string} colour `rgb(r,g,b)`
 * @returns {string}
 */
export function textColour(colour) {
  const [r, g, b] = (colour.match(/\d+/g) ?? []).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b < 120 ? "#ffffff" : "#000000";
}

/**
 * The colour of a cell of the heat map.
 * @param {number} heat 0 to 1
 * @param {boolean} dark
 * @returns {string}
 */
export function heatColour(heat, dark) {
  const lightness = dark ? 22 + 55 * heat : 92 - 57 * heat;
  return `hsl(${Math.round(45 - 40 * heat)} ${Math.round(40 + 55 * heat)}% ${lightness.toFixed(1)}%)`;
}
