/** Checkboxes that select samples by event, process, thread, container, state and so on. */

/** @import {Selection} from "./selection.js" */
import { element } from "./dom.js";
import { grouped } from "./numbers.js";

/** Values that are listed at first. */
const FIRST = 8;
const STEP = 40;

export class Facets {
  /**
   * @param {HTMLElement} root
   * @param {Selection} selection
   * @param {() => void} changed
   */
  constructor(root, selection, changed) {
    this.root = root;
    this.selection = selection;
    this.changed = changed;
    /** Values of each dimension that are listed, if not only the first ones. @type {Map<string, number>} */
    this.limits = new Map();
  }

  show() {
    const focused = /** @type {HTMLElement|null} */ (document.activeElement)?.id;
    const counts = this.selection.facets();
    const { dimensions, profile } = this.selection;
    const parts = profile.events.length > 1 ? [this.events()] : [];
    dimensions.forEach((_, at) => {
      const values = counts[at].reduce((sum, count) => sum + (count > 0 ? 1 : 0), 0);
      if (values > 1 || this.selection.chosen[at].size > 0) parts.push(this.facet(at, counts[at]));
    });
    if (parts.length === 0) this.root.replaceChildren(element("p", {}, "All samples have the same event, process and state."));
    else this.root.replaceChildren(...parts);
    if (focused) document.getElementById(focused)?.focus();
  }

  events() {
    const { selection } = this;
    const choices = selection.profile.events.map((event, at) => element("label", { class: "choice" },
      element("input", {
        type: "radio", name: "event", id: `event-${at}`, checked: selection.event === at,
        change: () => {
          selection.event = at;
          this.changed();
        },
      }), element("span", {}, event.title), element("b", {}, grouped(event.accounts.kept))));
    return element("fieldset", {}, element("legend", {}, "Event"), ...choices);
  }

  /**
   * @param {number} at
   * @param {Float64Array} counts
   */
  facet(at, counts) {
    const { dimensions, chosen } = this.selection;
    const dimension = dimensions[at];
    const order = [...counts.keys()].filter((value) => counts[value] > 0 || chosen[at].has(value))
      .sort((a, b) => Number(chosen[at].has(b)) - Number(chosen[at].has(a)) || counts[b] - counts[a]);
    const limit = this.limits.get(dimension.name) ?? FIRST;
    const choices = order.slice(0, limit).map((value) => this.choice(at, value, counts[value]));
    const box = element("fieldset", {}, element("legend", {}, dimension.title), ...choices);
    if (order.length > limit) {
      box.append(element("button", {
        type: "button", id: `more-${at}`,
        click: () => {
          this.limits.set(dimension.name, limit + STEP);
          this.show();
        },
      }, `${order.length - limit} more`));
    }
    return box;
  }

  /**
   * @param {number} at
   * @param {number} value
   * @param {number} count
   */
  choice(at, value, count) {
    const { dimensions, chosen } = this.selection;
    const text = dimensions[at].values[value] || "(none)";
    return element("label", { class: "choice", title: text },
      element("input", {
        type: "checkbox", id: `choice-${at}-${value}`, checked: chosen[at].has(value),
        change: (event) => {
          if (event.target.checked) chosen[at].add(value);
          else chosen[at].delete(value);
          this.changed();
        },
      }), element("span", {}, text), element("b", {}, grouped(count)));
  }
}
