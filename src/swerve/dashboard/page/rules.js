// Rules of operators: what is in force, what was done, and a form to set one. Only for a key with the scope `operate`.

import { ask } from "./ask.js";
import { ago, byId, clock, keyed, make, named, show, write } from "./dom.js";

/** Milliseconds between two looks at the rules; a change of this page is shown at once. */
const LOOK = 2000;
/** Lines of the audit that are shown. */
const CHANGES = 8;
const [HOUR, DAY] = [3600, 86400];
/** What each kind of rule does, in a word, and its number, if it has one. */
const KINDS = {
  pin: { done: "pinned", number: "Position" },
  block: { done: "blocked" },
  boost: { done: "boosted", number: "Places up" },
  off: { done: "switched off" },
};

/** The rule in words: “storm-warning” pinned to 1. */
function what({ kind, result, position, up }, title) {
  if (kind === "off") return "Policy switched off: the given order";
  const more = kind === "pin" ? ` to ${position}` : kind === "boost" ? ` by ${up}` : "";
  return `${title(result)}: ${KINDS[kind].done}${more}`;
}

const where = ({ query, namespace }) => (query ? named(query) : namespace ? `all queries of ${namespace}` : "all queries");

export class Rules {
  constructor(state, { query, key }) {
    Object.assign(this, { state, query, key, rules: [], changes: [], looked: 0, offered: "" });
    byId("rule-kind").addEventListener("change", () => this.fields());
    byId("rule-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.set();
    });
    this.fields();
  }

  get allowed() {
    return this.state.hello?.operate === true;
  }

  title = (id) => this.state.hello?.demo?.titles[id]?.title ?? id;

  /** Show the fields that the chosen kind of rule has. */
  fields() {
    const { number } = KINDS[byId("rule-kind").value];
    show(byId("rule-number-field"), Boolean(number));
    byId("rule-number").disabled = !number; // a hidden field must not stop the form
    write(byId("rule-number-label"), number ?? "Number");
    show(byId("rule-result-field"), byId("rule-kind").value !== "off");
  }

  draw() {
    show(byId("rules-part"), this.allowed);
    if (!this.allowed) return;
    if (Date.now() - this.looked > LOOK) this.look();
    this.offer();
    this.list();
    this.audit();
  }

  /** Read the rules and the audit from the service. */
  async look() {
    this.looked = Date.now();
    try {
      const [{ rules }, { changes }] = await Promise.all([
        ask("/v1/rules", undefined, this.key()),
        ask(`/v1/audit?limit=${CHANGES}`, undefined, this.key()),
      ]);
      Object.assign(this, { rules, changes });
      this.list();
      this.audit();
    } catch (trouble) {
      this.say(trouble.message, "bad");
    }
  }

  /** Offer the results of the watched query. The choice of a person stays while the list moves. */
  offer() {
    const ids = [...new Set([...(this.state.current?.ranking ?? []), ...(this.state.current?.state.arms ?? []).map((arm) => arm.id)])];
    const offered = ids.join("\n");
    if (offered === this.offered) return;
    this.offered = offered;
    const select = byId("rule-result");
    const chosen = select.value;
    const option = (id) => Object.assign(make("option", "", this.title(id)), { value: id });
    select.replaceChildren(...ids.sort((a, b) => this.title(a).localeCompare(this.title(b))).map(option));
    if (ids.includes(chosen)) select.value = chosen;
  }

  /** A time to come: with its day, unless it is near. */
  time(at) {
    const now = this.state.sample?.now ?? 0;
    return clock(this.state.dated(at), this.state.simulated, Math.abs(at - now) < DAY / 2 ? now : null);
  }

  list() {
    const now = this.state.sample?.now ?? 0;
    const rules = this.rules.filter(({ until }) => !until || until > now);
    show(byId("rules-empty"), rules.length === 0);
    keyed(
      byId("rules"),
      rules,
      ({ id, at }) => `${id} ${at}`,
      (rule) => {
        const button = make("button", "quiet", "Remove");
        button.type = "button";
        button.ariaLabel = `Remove: ${what(rule, this.title)}, for ${where(rule)}`;
        button.addEventListener("click", () => this.remove(rule));
        return make("li", "", "", make("p", "name"), make("p", "soft small"), button);
      },
      (node, rule) => {
        write(node.querySelector(".name"), what(rule, this.title));
        const until = rule.until ? `until ${this.time(rule.until)}` : "until it is removed";
        const more = [`for ${where(rule)}`, until, rule.by && `by ${rule.by}`, rule.note && `“${rule.note}”`];
        write(node.querySelector(".soft"), more.filter(Boolean).join(" · "));
      },
    );
  }

  audit() {
    show(byId("audit-part"), this.changes.length > 0);
    const said = ({ what: did, before, after, query, trial_after: trial }) => {
      if (did === "set") return `${what(after, this.title)}, for ${where(after)}${before ? " (changed)" : ""}`;
      if (did === "remove") return `Removed: ${what(before, this.title)}, for ${where(before)}`;
      if (did === "ramp") return trial ? `Experiment “${trial.name}”: ${+(100 * trial.treated).toFixed(2)} % treated` : "Experiment ended";
      if (did === "shift") return `Shift reported for ${named(query)}`;
      return "Deleted for good";
    };
    const now = this.state.sample?.now;
    keyed(
      byId("audit"),
      this.changes,
      ({ at, what: did }) => `${at} ${did}`,
      () => make("li", "", "", make("span", "name"), make("span", "soft small")),
      (node, change) => {
        write(node.querySelector(".name"), said(change));
        const when = now ? ago(now - change.at) : "";
        write(node.querySelector(".soft"), [change.by, when].filter(Boolean).join(", "));
      },
    );
  }

  async set() {
    const kind = byId("rule-kind").value;
    const here = byId("rule-where").value === "query";
    const query = here ? this.query() : null;
    // without a watched query a rule would hold for all
    if (here && query === null) return this.say("No query is watched: choose one, or set the rule for all queries.", "bad");
    const body = { kind };
    if (kind !== "off") body.result = byId("rule-result").value;
    if (kind === "pin") body.position = Number(byId("rule-number").value);
    if (kind === "boost") body.up = Number(byId("rule-number").value);
    if (query !== null) body.query = query;
    const hours = Number(byId("rule-until").value);
    if (hours) body.until = (this.state.sample?.now ?? Date.now() / 1000) + hours * HOUR;
    const note = byId("rule-note").value.trim();
    if (note) body.note = note;
    await this.change(async () => {
      const rule = await ask("/v1/rules", body, this.key());
      byId("rule-note").value = "";
      return `In force: ${what(rule, this.title)}, for ${where(rule)}.`;
    });
  }

  remove(rule) {
    return this.change(async () => {
      const gone = await ask(`/v1/rules/${rule.id}`, undefined, this.key(), "DELETE");
      return `Removed: ${what(gone, this.title)}, for ${where(gone)}.`;
    });
  }

  /** Carry out a change and show its outcome; a second press meanwhile does nothing. */
  async change(work) {
    if (this.busy) return;
    this.busy = true;
    try {
      this.say(await work());
    } catch (trouble) {
      this.say(trouble.message, "bad");
    } finally {
      this.busy = false;
    }
    await this.look();
  }

  say(text, kind = "good") {
    write(byId("rules-said"), text);
    byId("rules-said").dataset.kind = kind;
  }
}
