/** The connection to the server: requests with the token, and the live feed of server-sent events. */

import { unpack } from "./data.js";

/** Milliseconds until the next attempt after a failure. */
const AGAIN_AFTER = 2000;

/**
 * What an event does with the page's document.
 * @typedef {{change: "whole"|"increment"|"end", id: number, document: any}} FeedEvent
 */

/** A request that the server refused. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} text
   */
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export class Server {
  constructor() {
    this.token = "";
  }

  /**
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @returns {Promise<Response>}
   */
  async get(path, signal) {
    /** @type {Record<string, string>} */
    const headers = this.token === "" ? {} : { Authorization: `Bearer ${this.token}` };
    const response = await fetch(path, { headers, signal, cache: "no-store" });
    if (!response.ok) throw new Refusal(response.status, (await response.text()).trim());
    return response;
  }
}

/** Reads the live feed until it is stopped, and connects again when the connection ends. */
export class Feed {
  /**
   * @param {Server} server
   * @param {string} path
   * @param {{event: (event: FeedEvent) => void, failed: (error: unknown) => void}} on
   */
  constructor(server, path, on) {
    this.server = server;
    this.path = path;
    this.on = on;
    this.stopper = new AbortController();
    /** The page's document has all increments up to this one. */
    this.last = -1;
    this.run();
  }

  stop() {
    this.stopper.abort();
  }

  async run() {
    const { signal } = this.stopper;
    while (!signal.aborted) {
      try {
        await this.read(await this.server.get(this.path, signal));
      } catch (error) {
        if (signal.aborted) return;
        this.on.failed(error);
        if (error instanceof Refusal && error.status === 401) return;
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER));
    }
  }

  /** @param {Response} response */
  async read(response) {
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    const decoder = new TextDecoder();
    /** Texts of the event that has not ended. @type {string[]} */
    let parts = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      // Events are long: only the new text is searched. An event ends with two line feeds, of which one may have come before.
      let text = decoder.decode(value, { stream: true });
      if (text.startsWith("\n") && parts.length > 0 && parts[parts.length - 1].endsWith("\n")) text = `${parts.pop()}${text}`;
      const ends = text.split("\n\n");
      for (const end of ends.slice(0, -1)) {
        await this.take([...parts, end].join(""));
        parts = [];
      }
      const rest = ends[ends.length - 1];
      if (rest !== "") parts.push(rest);
    }
  }

  /** @param {string} text of one event */
  async take(text) {
    const fields = Object.fromEntries(text.split("\n").map((line) => line.split(/: (.*)/s, 2)));
    const [change, id] = [fields.event, Number(fields.id)];
    if (change === "increment" && id <= this.last) return;
    const document = await unpack(fields.data);
    if (this.stopper.signal.aborted) return;
    this.last = id;
    if (change === "end") this.stop();
    this.on.event({ change, id, document });
  }
}
