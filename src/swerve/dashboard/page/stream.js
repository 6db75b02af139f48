// The live stream: server-sent events read with fetch(), because EventSource cannot send an API key.

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15000;
// the service sends at least a comment every 15 s: after this time without a byte the connection is dead
const SILENCE = 40000;

/** Parses lines of an event stream into messages `{id, event, data}`. */
export class Parser {
  constructor(message) {
    this.message = message;
    this.rest = "";
    this.clear();
  }

  clear() {
    this.name = "message";
    this.id = null;
    this.data = [];
  }

  feed(text) {
    const lines = (this.rest + text).split(/\r\n|\n/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === "") {
      if (this.data.length) this.message({ id: this.id, event: this.name, data: this.data.join("\n") });
      this.clear();
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.name = value;
    else if (field === "id") this.id = value;
    else if (field === "data") this.data.push(value);
  }
}

/**
 * Follow the stream of one query, and reconnect after every loss with the last id, so that no message is missed.
 * `on(name, data)` receives the messages; `status(state, more)` receives one of
 * connecting, live, waiting {reason}, key {code}, refused {reason}.
 */
export class Stream {
  constructor({ query, key, on, status }) {
    Object.assign(this, { query, key, on, status });
    this.last = null;
    this.tries = 0;
    this.closed = false;
    this.again = () => this.retry();
    window.addEventListener("online", this.again);
    this.open();
  }

  close() {
    this.closed = true;
    window.removeEventListener("online", this.again);
    clearTimeout(this.timer);
    clearTimeout(this.guard);
    this.abort?.abort();
  }

  /** Try again now, without waiting. */
  retry() {
    if (this.closed || this.timer === undefined) return;
    this.open();
  }

  async open() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.abort = new AbortController();
    this.status("connecting", { tries: this.tries });
    let reason = "the connection was closed";
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.key) headers.Authorization = `Bearer ${this.key}`;
      if (this.last) headers["Last-Event-ID"] = this.last;
      const path = this.query === null ? "/v1/live" : `/v1/live?query=${encodeURIComponent(this.query)}`;
      this.listen();
      const answer = await fetch(path, { headers, signal: this.abort.signal, cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) {
        if (!this.closed) this.status("key", { code: answer.status });
        return this.close();
      }
      if (answer.ok) await this.read(answer.body);
      else {
        const said = await answer.json().catch(() => null);
        reason = said?.error?.message ?? `the service answered ${answer.status}`;
        // another try would have the same result
        if (answer.status === 422 && !this.closed) {
          this.status("refused", { reason });
          return this.close();
        }
      }
    } catch (trouble) {
      if (!(trouble instanceof TypeError || trouble.name === "AbortError")) throw trouble;
      reason = "the service cannot be reached";
    } finally {
      clearTimeout(this.guard);
    }
    if (this.closed) return;
    // jitter: fifty pages must not reconnect at the same moment
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.timer = setTimeout(() => this.open(), wait);
    this.status("waiting", { reason });
  }

  listen() {
    clearTimeout(this.guard);
    this.guard = setTimeout(() => this.abort.abort(), SILENCE);
  }

  async read(body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    const parser = new Parser(({ id, event, data }) => {
      if (this.closed) return;
      if (id) this.last = id;
      if (this.tries || event === "hello") this.status("live", {});
      this.tries = 0;
      this.on(event, JSON.parse(data));
    });
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.closed) return;
      this.listen();
      parser.feed(decoder.decode(value, { stream: true }));
    }
  }
}
