/** The page of a server: it shows a profile that grows, and asks the daemon for other times. */

/** @import {FeedEvent} from "./feed.js" */
/** @import {Range} from "./selection.js" */
/** @import {ProfileRequest} from "./bar.js" */
import { DaemonBar, MINUTE } from "./bar.js";
import { Profile, unpack } from "./data.js";
import { byId, element } from "./dom.js";
import { Feed, Refusal, Server } from "./feed.js";
import { Growing } from "./growing.js";

/** Shortest time between two updates, and how much longer the pause is than the update took. */
const [EVERY, PAUSE] = [900, 4];
/** A page that shows more columns than this many times its range loads the range anew. */
const MOST = 2;

/**
 * @typedef {{of: "run"|"daemon", window_ms: number, token: boolean}} ServerFacts
 * @typedef {{range: Range, base: Range}} Compared
 */

export class Live {
  /**
   * @param {ServerFacts} facts
   * @param {(profile: Profile, compared: Compared|null) => void} show
   */
  constructor(facts, show) {
    this.facts = facts;
    this.show = show;
    this.server = new Server();
    this.growing = new Growing();
    /** @type {Feed|null} */
    this.feed = null;
    /** @type {DaemonBar|null} */
    this.daemon = null;
    this.paused = false;
    this.ended = false;
    this.pressed = false;
    /** Whether there is something that is not shown. */
    this.changed = false;
    /** When the next update may begin. */
    this.due = 0;
    /** @type {number|undefined} */
    this.timer = undefined;
    /** Ends what the user asked the daemon for. */
    this.job = new AbortController();
    this.build();
    // An update must not replace what the pointer is pressing.
    document.addEventListener("pointerdown", () => (this.pressed = true), true);
    for (const name of ["pointerup", "pointercancel"]) {
      document.addEventListener(name, () => {
        this.pressed = false;
        this.plan();
      });
    }
    document.addEventListener("visibilitychange", () => this.plan());
    if (facts.token) this.askForToken("This server needs a token.");
    else this.start();
  }

  build() {
    this.state = element("span", { id: "live-state" });
    this.pause = element("button", { type: "button", id: "pause", click: () => this.turn() }, "Pause");
    this.form = element("form", { id: "token", hidden: true, submit: (event) => this.useToken(event) });
    this.bar = element("span", { class: "bar" }, this.state, this.pause);
    byId("live").append(this.bar, this.form);
    byId("live").hidden = false;
    if (this.facts.of !== "daemon") return;
    this.daemon = new DaemonBar({
      past: () => this.start(), live: () => this.start(), profile: (request) => this.profileNow(request), compare: () => this.compare(),
    });
    this.bar.append(...this.daemon.parts);
  }

  /** @param {string} why */
  askForToken(why) {
    const { form } = this;
    form?.replaceChildren(element("label", {}, `${why} Token `, element("input", { type: "password", id: "token-text", autocomplete: "off" })), element("button", {}, "Open"));
    if (form) form.hidden = false;
    if (this.bar) this.bar.hidden = true;
    byId("token-text").focus();
  }

  /** @param {Event} event */
  useToken(event) {
    event.preventDefault();
    this.server.token = byId("token-text").value.trim();
    if (this.form) this.form.hidden = true;
    if (this.bar) this.bar.hidden = false;
    this.start();
  }

  /** Shows the live profile. */
  start() {
    this.leave();
    this.say("connecting …");
    if (this.daemon) this.daemon.back.hidden = true;
    if (this.pause) this.pause.hidden = false;
    this.setPaused(false);
    const path = this.daemon ? `live?seconds=${this.daemon.seconds}` : "live";
    this.feed = new Feed(this.server, path, { event: (event) => this.take(event), failed: (error) => this.failed(error) });
    this.showReach();
  }

  /** Ends the feed and what the user asked for before. */
  leave() {
    this.feed?.stop();
    this.feed = null;
    this.job.abort();
    this.job = new AbortController();
    if (this.daemon) this.daemon.progress.hidden = true;
  }

  /** @param {unknown} error */
  failed(error) {
    if (error instanceof Refusal && error.status === 401) this.askForToken("The token is not right.");
    else this.say(error instanceof Refusal ? error.message : "no connection to the profiler; trying again", true);
  }

  /** @param {FeedEvent} event */
  take({ change, document }) {
    if (change !== "increment") this.growing = new Growing();
    this.growing.add(document);
    this.changed = true;
    this.ended = change === "end";
    if (this.ended && this.pause) this.pause.hidden = true;
    this.daemon?.offer(this.growing.containers, this.growing.events);
    if (this.daemon && change === "increment" && this.growing.columns * this.facts.window_ms > MOST * 1000 * this.daemon.seconds) {
      // The daemon has the range anew, and the page forgets what is older.
      this.start();
    } else this.plan();
  }

  /** Shows what is new as soon as it is time. */
  plan() {
    this.showState();
    if (!this.changed || this.paused || this.pressed || document.hidden || this.timer !== undefined) return;
    this.timer = window.setTimeout(() => {
      this.timer = undefined;
      if (this.pressed || this.paused || document.hidden || !this.changed) return;
      this.changed = false;
      const began = performance.now();
      this.show(new Profile(this.growing.document()), null);
      const took = performance.now() - began;
      this.due = performance.now() + Math.max(EVERY, PAUSE * took);
    }, Math.max(0, this.due - performance.now()));
  }

  turn() {
    this.setPaused(!this.paused);
    this.plan();
  }

  /** @param {boolean} paused */
  setPaused(paused) {
    this.paused = paused;
    if (this.pause) this.pause.textContent = paused ? "Go on" : "Pause";
  }

  showState() {
    if (this.feed === null) return;
    if (this.ended) return this.say("the run has ended");
    if (this.growing.columns === 0 || this.growing.events.every((event) => event.accounts.kept === 0)) return this.say("waiting for samples …");
    if (this.paused) return this.say("paused");
    this.say("live");
    /** @type {HTMLElement} */ (this.state).classList.add("on");
  }

  /**
   * @param {string} text
   * @param {boolean} [isBad]
   */
  say(text, isBad = false) {
    const state = /** @type {HTMLElement} */ (this.state);
    if (state.textContent !== text) state.textContent = text;
    state.classList.toggle("warn", isBad);
    state.classList.remove("on");
  }

  /**
   * The stored windows: begin of the first and end of the last one, in seconds since 1970.
   * @returns {Promise<[number, number]|null>}
   */
  async stored() {
    const { windows } = await (await this.server.get("windows")).json();
    return windows.length === 0 ? null : [windows[0].from, windows[windows.length - 1].to];
  }

  async showReach() {
    if (this.daemon === null) return;
    try {
      const span = await this.stored();
      if (span !== null) this.daemon.showReach(...span);
    } catch {
      // The feed says what is wrong with the connection.
    }
  }

  /** @param {ProfileRequest} request */
  async profileNow({ seconds, query, text }) {
    const progress = this.begin(`profiling: ${text} …`);
    const began = performance.now();
    // The answer comes behind the end of a window.
    const expected = 1000 * seconds + this.facts.window_ms;
    const step = setInterval(() => (progress.value = Math.min(1, (performance.now() - began) / expected)), 200);
    await this.ask(async (signal) => {
      const read = await this.fetched(`profile?${query}&format=document`, signal);
      this.growing = new Growing();
      this.growing.add(read);
      this.result(`a profile of ${text}`, null);
    });
    clearInterval(step);
  }

  async compare() {
    const { seconds, secondsBefore, before } = /** @type {DaemonBar} */ (this.daemon);
    // No window may be in both times.
    const back = Math.max(secondsBefore, seconds + this.facts.window_ms / 1000);
    const word = before.selectedOptions[0].text;
    this.begin("loading …");
    await this.ask(async (signal) => {
      const span = await this.stored();
      if (span === null) throw new Refusal(404, "no windows are stored");
      const load = (/** @type {number} */ to) => this.fetched(`window?from=${to - seconds}&to=${to}&format=document`, signal);
      const [then, now] = [await load(span[1] - back), await load(span[1])];
      this.growing = new Growing();
      this.growing.add(then);
      const columns = this.growing.columns;
      this.growing.add(now);
      this.result(`the last ${seconds / MINUTE} min against ${word}`, { base: [0, columns], range: [columns, this.growing.columns] });
    });
  }

  /**
   * Leaves the live profile for something that takes time.
   * @param {string} text
   * @returns {HTMLProgressElement}
   */
  begin(text) {
    const { back, progress } = /** @type {DaemonBar} */ (this.daemon);
    this.leave();
    this.say(text);
    if (this.pause) this.pause.hidden = true;
    back.hidden = progress.hidden = false;
    progress.removeAttribute("value");
    return progress;
  }

  /**
   * @param {string} path
   * @param {AbortSignal} signal
   */
  async fetched(path, signal) {
    return unpack(await (await this.server.get(path, signal)).text());
  }

  /** @param {(signal: AbortSignal) => Promise<void>} job */
  async ask(job) {
    const { signal } = this.job;
    try {
      await job(signal);
    } catch (error) {
      if (!signal.aborted) this.failed(error);
    }
    if (!signal.aborted && this.daemon) this.daemon.progress.hidden = true;
  }

  /**
   * @param {string} text
   * @param {Compared|null} compared
   */
  result(text, compared) {
    this.changed = false;
    this.say(text);
    this.show(new Profile(this.growing.document()), compared);
  }
}
