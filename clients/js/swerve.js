/**
 * swerve-client: rank search results, and report what was clicked and what was in view. No dependency; browsers and Node from 18.
 * The source is src/swerve.ts: `npm run build` compiles swerve.js and swerve.d.ts from it. Docs: docs/client.md.
 */
/** A refusal by the service (`status` and `code` say why), or no usable answer after all tries. */
export class SwerveError extends Error {
    constructor(message, status, code) {
        super(message);
        this.name = "SwerveError";
        this.status = status;
        this.code = code;
    }
}
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
/** Clicks as the service takes them: a list of events. */
const eventsOf = (clicks) => []
    .concat(clicks ?? [])
    .map((click) => typeof click == "object" ? { kind: "click", ...click } : { kind: "click", [typeof click == "number" ? "position" : "result"]: click });
const formOf = (decision, clicks, shown) => ({
    decision,
    events: eventsOf(clicks),
    ...(shown && { shown }),
});
export class Swerve {
    constructor(url = "http://127.0.0.1:8350", { key, namespace, timeout = 250, retries = 3 } = {}) {
        this.url = url.replace(/\/+$/, "");
        this.namespace = namespace;
        this.timeout = timeout;
        this.retries = retries;
        this.headers = { "content-type": "application/json", ...(key && { authorization: "Bearer " + key }) };
    }
    async _post(path, body, timeout) {
        const answer = await fetch(this.url + path, {
            method: "POST",
            headers: this.headers,
            body: JSON.stringify(body),
            credentials: "omit",
            signal: AbortSignal.timeout(timeout),
        });
        const said = await answer.json();
        if (answer.ok)
            return said;
        throw new SwerveError(said.error.message, answer.status, said.error.code);
    }
    /** Never rejects: without an answer in time it resolves to the given order, with `degraded` and a `reason`. */
    async rank(query, candidates, options) {
        const given = candidates.map((one) => (typeof one == "string" ? one : one.id));
        try {
            const said = await this._post("/v1/rank", { namespace: this.namespace, ...options, query, candidates }, this.timeout);
            if (Array.isArray(said.ranking))
                return said;
            throw new SwerveError("the answer is not a ranking");
        }
        catch (trouble) {
            return { decision: null, ranking: given, propensities: null, explored: null, phase: null, degraded: true, reason: String(trouble) };
        }
    }
    /**
     * Resolves to the status when the feedback is durable, to null without a decision. Tries again, which is safe: a click counts once.
     * Rejects with a `SwerveError`.
     */
    async feedback(decision, clicks, shown) {
        if (!decision)
            return null;
        for (let tries = 0;; tries++) {
            try {
                return (await this._post("/v1/feedback", formOf(decision, clicks, shown), 2000)).status;
            }
            catch (trouble) {
                const { status = 0 } = trouble;
                const final = status >= 400 && status < 500 && status != 429 && status != 408;
                if (final || tries >= this.retries)
                    throw trouble instanceof SwerveError ? trouble : new SwerveError(String(trouble));
                await wait(100 * 2 ** tries * (0.5 + Math.random() / 2));
            }
        }
    }
    /** Sends without waiting, also while the page goes away; false if there is no decision. Needs no key. */
    beacon(decision, clicks, shown) {
        if (!decision)
            return false;
        const url = this.url + "/v1/beacon";
        const body = JSON.stringify(formOf(decision, clicks, shown));
        const browser = globalThis.navigator;
        // a text is sent as text/plain, which needs no preflight: one would die with the page
        if (browser?.sendBeacon?.(url, body))
            return true;
        fetch(url, { method: "POST", body, headers: { "content-type": "text/plain" }, credentials: "omit", keepalive: true }).catch(() => { });
        return true;
    }
    /**
     * Watches the results of a page: `elements` from the top, each with its id in `data-swerve`. A click on a link in one is sent as it
     * happens; which results came into view is sent with it, and when the page is hidden. Returns a function that ends it.
     */
    watch(decision, elements, { share = 0.5, ms = 300, links = "a" } = {}) {
        const all = [...elements];
        const ids = all.map((element) => element.dataset.swerve);
        const timers = new Map();
        let seen = 0;
        let sent = 0;
        const see = (index) => (seen = Math.max(seen, index + 1));
        const send = (clicks) => {
            sent = seen;
            this.beacon(decision, clicks, ids.slice(0, seen));
        };
        const observer = new IntersectionObserver((entries) => {
            for (const { target, intersectionRatio } of entries) {
                clearTimeout(timers.get(target));
                if (intersectionRatio >= share)
                    timers.set(target, setTimeout(see, ms, all.indexOf(target)));
            }
        }, { threshold: share });
        const clicked = ({ currentTarget, target, button }) => {
            if (button > 1 || !target.closest(links))
                return;
            const index = all.indexOf(currentTarget);
            see(index);
            send(ids[index]);
        };
        const hidden = ({ type }) => {
            if ((type == "pagehide" || document.visibilityState == "hidden") && seen > sent)
                send();
        };
        const listen = (what) => {
            for (const element of all) {
                element[what]("click", clicked);
                element[what]("auxclick", clicked);
            }
            document[what]("visibilitychange", hidden);
            globalThis[what]("pagehide", hidden);
        };
        if (!decision)
            return () => { };
        listen("addEventListener");
        for (const element of all)
            observer.observe(element);
        return () => {
            listen("removeEventListener");
            observer.disconnect();
            timers.forEach(clearTimeout);
            if (seen > sent)
                send();
        };
    }
}
