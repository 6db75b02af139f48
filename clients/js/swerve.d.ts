/**
 * swerve-client: rank search results, and report what was clicked and what was in view. No dependency; browsers and Node from 18.
 * The source is src/swerve.ts: `npm run build` compiles swerve.js and swerve.d.ts from it. Docs: docs/client.md.
 */
/** A result on offer: its id, or its id with the time it was published and the search engine's score. */
export type Candidate = string | {
    id: string;
    published_at?: number | string | null;
    score?: number | null;
};
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
    ruled?: {
        kind: string;
        rule: number;
        result?: string;
        position?: number;
    }[];
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
export type Watched = typeof globalThis extends {
    HTMLElement: {
        prototype: infer Found;
    };
} ? Found : never;
/** A refusal by the service (`status` and `code` say why), or no usable answer after all tries. */
export declare class SwerveError extends Error {
    readonly name = "SwerveError";
    readonly status: number | undefined;
    readonly code: string | undefined;
    constructor(message: string, status?: number, code?: string);
}
export declare class Swerve {
    private readonly url;
    private readonly namespace;
    private readonly timeout;
    private readonly retries;
    private readonly headers;
    constructor(url?: string, { key, namespace, timeout, retries }?: Options);
    private _post;
    /** Never rejects: without an answer in time it resolves to the given order, with `degraded` and a `reason`. */
    rank(query: string, candidates: readonly Candidate[], options?: RankOptions): Promise<Ranking>;
    /**
     * Resolves to the status when the feedback is durable, to null without a decision. Tries again, which is safe: a click counts once.
     * Rejects with a `SwerveError`.
     */
    feedback(decision: string | null, clicks?: Clicks, shown?: readonly string[]): Promise<Status | null>;
    /** Sends without waiting, also while the page goes away; false if there is no decision. Needs no key. */
    beacon(decision: string | null, clicks?: Clicks, shown?: readonly string[]): boolean;
    /**
     * Watches the results of a page: `elements` from the top, each with its id in `data-swerve`. A click on a link in one is sent as it
     * happens; which results came into view is sent with it, and when the page is hidden. Returns a function that ends it.
     */
    watch(decision: string | null, elements: Iterable<Watched>, { share, ms, links }?: WatchOptions): () => void;
}
