/**
 * swerve-client: rank search results, and report what was clicked and what was in view. No dependency; browsers and Node from 18.
 * The source is src/swerve.ts: `npm run build` compiles swerve.js and swerve.d.ts from it. Docs: docs/client.md.
 */

/** A result on offer: its id, or its id with the time it was published and the search engine's score. */
export type Candidate = string | { id: string; published_at?: number | string | null; score?: number | null };

/** Something that a user did on a result, which it names by `result` or by `position`. */
export interface Event {
  kind?: string;
  result?: string;
  position?: number;
  id?: string;
  at?: number | string;
  value?: number;
}

/** A click: the id of the result, its position from 1, or an event. */
export type Click = string | number | Event;
/** One click, several, or none. */
export type Clicks = Click | readonly Click[] | null | undefined;
export type Status = "learned" | "late" | "ignored" | "expired";

export interface Options {
  /** An API key. It belongs on a server, never into a page. */
  key?: string;
  /** The namespace of rankings that name none. */
  namespace?: string;
  /** Milliseconds for a whole `rank`; 250. */
  timeout?: number;
  /** Further tries of `feedback`; 3. */
  retries?: number;
}

export interface RankOptions {
  slots?: number;
  signals?: Record<string, number | null>;
  session?: string;
  locale?: string;
  filter?: string;
  segment?: string;
  unit?: string;
  namespace?: string;
  /** The `query_id` of User Behavior Insights. */
  query_id?: string;
}

export interface Ranking {
  /** Send it back with feedback; null where the ranking is degraded. */
  decision: string | null;
  /** The ids in the order to show. */
  ranking: string[];
  propensities: number[] | null;
  explored: number | null;
  phase: number | null;
  /** Whether this is the given order, without a decision. */
  degraded: boolean;
  /** Why the service gave no answer. */
  reason?: string;
  ruled?: { kind: string; rule: number; result?: string; position?: number }[];
  swapped?: number[];
  shadow?: boolean;
  arm?: "treated" | "control";
  guarded?: string;
}

export interface WatchOptions {
  /** The share of a result that must be in view; 0.5. */
  share?: number;
  /** Milliseconds that it must be in view; 300. */
  ms?: number;
  /** Selector of what a click must hit inside a result; "a". */
  links?: string;
}

/** `HTMLElement`, where the program is compiled with the types of a browser; without them there is nothing to watch. */
export type Watched = typeof globalThis extends { HTMLElement: { prototype: infer Found } } ? Found : never;

/** A refusal by the service (`status` and `code` say why), or no usable answer after all tries. */
export class SwerveError extends Error {
  override readonly name = "SwerveError";
  readonly status: number | undefined;
  readonly code: string | undefined;

  constructor(message: string, status?: number, code?: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const wait = (ms: number) => new Promise((done) => setTimeout(done, ms));

/** Clicks as the service takes them: a list of events. */
const eventsOf = (clicks: Clicks): Event[] =>
  ([] as Click[])
    .concat(clicks ?? [])
    .map((click) =>
      typeof click == "object" ? { kind: "click", ...click } : { kind: "click", [typeof click == "number" ? "position" : "result"]: click },
    );

const formOf = (decision: string, clicks: Clicks, shown?: readonly string[]) => ({
  decision,
  events: eventsOf(clicks),
  ...(shown && { shown }),
});

export class Swerve {
  private readonly url: string;
  private readonly namespace: string | undefined;
  private readonly timeout: number;
  private readonly retries: number;
  private readonly headers: Record<string, string>;

  constructor(url = "http://127.0.0.1:8350", { key, namespace, timeout = 250, retries = 3 }: Options = {}) {
    this.url = url.replace(/\/+$/, "");
    this.namespace = namespace;
    this.timeout = timeout;
    this.retries = retries;
    this.headers = { "content-type": "application/json", ...(key && { authorization: "Bearer " + key }) };
  }

  private async _post<Answer>(path: string, body: object, timeout: number): Promise<Answer> {
    const answer = await fetch(this.url + path, {
      method: "POST",
      headers: this.headers,
      body: JSON.stringify(body),
      credentials: "omit",
      signal: AbortSignal.timeout(timeout),
    });
    const said = await answer.json();
    if (answer.ok) return said;
    throw new SwerveError(said.error.message, answer.status, said.error.code);
  }

  /** Never rejects: without an answer in time it resolves to the given order, with `degraded` and a `reason`. */
  async rank(query: string, candidates: readonly Candidate[], options?: RankOptions): Promise<Ranking> {
    const given = candidates.map((one) => (typeof one == "string" ? one : one.id));
    try {
      const said = await this._post<Ranking>("/v1/rank", { namespace: this.namespace, ...options, query, candidates }, this.timeout);
      if (Array.isArray(said.ranking)) return said;
      throw new SwerveError("the answer is not a ranking");
    } catch (trouble) {
      return { decision: null, ranking: given, propensities: null, explored: null, phase: null, degraded: true, reason: String(trouble) };
    }
  }

  /**
   * Resolves to the status when the feedback is durable, to null without a decision. Tries again, which is safe: a click counts once.
   * Rejects with a `SwerveError`.
   */
  async feedback(decision: string | null, clicks?: Clicks, shown?: readonly string[]): Promise<Status | null> {
    if (!decision) return null;
    for (let tries = 0; ; tries++) {
      try {
        return (await this._post<{ status: Status }>("/v1/feedback", formOf(decision, clicks, shown), 2000)).status;
      } catch (trouble) {
        const { status = 0 } = trouble as { status?: number };
        const final = status >= 400 && status < 500 && status != 429 && status != 408;
        if (final || tries >= this.retries) throw trouble instanceof SwerveError ? trouble : new SwerveError(String(trouble));
        await wait(100 * 2 ** tries * (0.5 + Math.random() / 2));
      }
    }
  }

  /** Sends without waiting, also while the page goes away; false if there is no decision. Needs no key. */
  beacon(decision: string | null, clicks?: Clicks, shown?: readonly string[]): boolean {
    if (!decision) return false;
    const url = this.url + "/v1/beacon";
    const body = JSON.stringify(formOf(decision, clicks, shown));
    const browser: Partial<Navigator> | undefined = globalThis.navigator;
    // a text is sent as text/plain, which needs no preflight: one would die with the page
    if (browser?.sendBeacon?.(url, body)) return true;
    fetch(url, { method: "POST", body, headers: { "content-type": "text/plain" }, credentials: "omit", keepalive: true }).catch(() => {});
    return true;
  }

  /**
   * Watches the results of a page: `elements` from the top, each with its id in `data-swerve`. A click on a link in one is sent as it
   * happens; which results came into view is sent with it, and when the page is hidden. Returns a function that ends it.
   */
  watch(decision: string | null, elements: Iterable<Watched>, { share = 0.5, ms = 300, links = "a" }: WatchOptions = {}): () => void {
    const all = [...elements];
    const ids = all.map((element) => element.dataset.swerve as string);
    const timers = new Map<Element, number>();
    let seen = 0;
    let sent = 0;
    const see = (index: number) => (seen = Math.max(seen, index + 1));
    const send = (clicks?: Clicks) => {
      sent = seen;
      this.beacon(decision, clicks, ids.slice(0, seen));
    };
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { target, intersectionRatio } of entries) {
          clearTimeout(timers.get(target));
          if (intersectionRatio >= share) timers.set(target, setTimeout(see, ms, all.indexOf(target as Watched)));
        }
      },
      { threshold: share },
    );
    const clicked = ({ currentTarget, target, button }: MouseEvent) => {
      if (button > 1 || !(target as Element).closest(links)) return;
      const index = all.indexOf(currentTarget as Watched);
      see(index);
      send(ids[index]);
    };
    const hidden = ({ type }: globalThis.Event) => {
      if ((type == "pagehide" || document.visibilityState == "hidden") && seen > sent) send();
    };
    const listen = (what: "addEventListener" | "removeEventListener") => {
      for (const element of all as EventTarget[]) {
        element[what]("click", clicked as EventListener);
        element[what]("auxclick", clicked as EventListener);
      }
      (document as EventTarget)[what]("visibilitychange", hidden);
      (globalThis as unknown as EventTarget)[what]("pagehide", hidden);
    };
    if (!decision) return () => {};
    listen("addEventListener");
    for (const element of all) observer.observe(element);
    return () => {
      listen("removeEventListener");
      observer.disconnect();
      timers.forEach(clearTimeout);
      if (seen > sent) send();
    };
  }
}
