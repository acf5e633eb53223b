/** The daemon's controls: which stored time is shown, what the next profile has, and what is compared. */

/** @import {Container, SampledEvent} from "./data.js" */
import { element } from "./dom.js";

export const MINUTE = 60;
const [HOUR, DAY] = [60 * MINUTE, 1440 * MINUTE];
/** @typedef {[string|number, string]} Choice the value and the text of an option */
/** @type {Choice[]} */
const PAST = [[5 * MINUTE, "5 minutes"], [15 * MINUTE, "15 minutes"], [HOUR, "hour"]];
/** Times to compare with, seconds before. @type {Choice[]} */
const BEFORE = [[0, "the time before"], [HOUR, "an hour before"], [DAY, "the day before"], [7 * DAY, "the week before"]];
/** @type {Choice} */
const EVERYTHING = ["", "all processes"];

/**
 * A profile of the next seconds. `query` chooses its samples, as a part of the request.
 * @typedef {{seconds: number, query: string, text: string}} ProfileRequest
 */

/** @param {Choice[]} list */
function options(list) {
  return list.map(([value, text]) => element("option", { value }, text));
}

/**
 * Replaces the options of a selection, unless they are the same. What is chosen stays.
 * @param {HTMLSelectElement} select
 * @param {Choice[]} list
 */
function offer(select, list) {
  const [chosen] = select.selectedOptions;
  const all = chosen === undefined || list.some(([value]) => value === chosen.value) ? list : [...list, /** @type {Choice} */ ([chosen.value, chosen.text])];
  if ([...select.options].map((one) => one.value).join("\n") === all.map(([value]) => value).join("\n")) return;
  select.replaceChildren(...options(all));
  if (chosen !== undefined) select.value = chosen.value;
}

/**
 * Pods, and containers with those of pods, as choices of a request.
 * @param {Container[]} containers
 * @returns {Choice[]}
 */
function places(containers) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const { namespace, pod, title, id } of containers) {
    if (pod !== "") found.set(new URLSearchParams({ namespace, pod }).toString(), `pod ${namespace}/${pod}`);
    if (id !== "") found.set(new URLSearchParams({ container: id }).toString(), `container ${title}`);
  }
  return [EVERYTHING, ...[...found].sort(([, a], [, b]) => (a < b ? -1 : 1))];
}

export class DaemonBar {
  /** @param {{past: () => void, profile: (request: ProfileRequest) => void, compare: () => void, live: () => void}} on */
  constructor(on) {
    const submit = (/** @type {() => void} */ then) => (/** @type {Event} */ event) => {
      event.preventDefault();
      then();
    };
    this.back = element("button", { type: "button", id: "back", hidden: true, click: on.live }, "Back to live");
    this.past = element("select", { id: "past", change: on.past }, ...options(PAST));
    this.length = element("input", { type: "number", id: "length", min: 1, max: 300, value: 10 });
    this.place = element("select", { id: "place" }, ...options([EVERYTHING]));
    this.event = element("select", { id: "event", "aria-label": "Event" });
    this.before = element("select", { id: "before", "aria-label": "Compare with" }, ...options(BEFORE));
    this.reach = element("span", { id: "reach" });
    this.progress = element("progress", { id: "progress", max: 1, hidden: true, "aria-label": "Progress" });
    this.parts = [
      this.back,
      element("label", {}, "Last ", this.past),
      element("form", { class: "bar", submit: submit(() => on.profile(this.request())) },
        element("button", { id: "now" }, "Profile now"), element("label", {}, " for ", this.length, " s"),
        element("label", {}, " of ", this.place), this.event),
      element("form", { class: "bar", submit: submit(on.compare) },
        element("button", { id: "compare" }, "Compare"), element("label", {}, " with ", this.before)),
      this.progress, this.reach,
    ];
    this.offerEvents([]);
  }

  /** Length of the time that the page shows, in seconds. */
  get seconds() {
    return Number(this.past.value);
  }

  /** How many seconds before the time to compare with is; 0 is just before. */
  get secondsBefore() {
    return Number(this.before.value);
  }

  /** @returns {ProfileRequest} */
  request() {
    const seconds = Number(this.length.value);
    const query = [`seconds=${seconds}`, this.place.value, this.event.value].filter((part) => part !== "").join("&");
    const words = [this.place, this.event].flatMap((select) => (select.value === "" ? [] : [select.selectedOptions[0].text]));
    return { seconds, query, text: [`${seconds} s`, ...words].join(", ") };
  }

  /**
   * Offers what the live profile has.
   * @param {Container[]} containers
   * @param {SampledEvent[]} events
   */
  offer(containers, events) {
    offer(this.place, places(containers));
    this.offerEvents(events);
  }

  /** @param {SampledEvent[]} events */
  offerEvents(events) {
    offer(this.event, [["", "all events"], .../** @type {Choice[]} */ (events.map(({ name, title }) => [`event=${name}`, title]))]);
    this.event.hidden = events.length < 2;
  }

  /**
   * Says how far the stored windows reach, and offers only comparisons that they have.
   * @param {number} from seconds since 1970
   * @param {number} to seconds since 1970
   */
  showReach(from, to) {
    for (const option of this.before.options) option.disabled = to - from < (Number(option.value) || this.seconds);
    this.reach.textContent = `stored since ${new Date(from * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}`;
  }
}
