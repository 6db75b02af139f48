// The controls of a simulation: its time, its buttons, and a search whose clicks count.

import { ask } from "./ask.js";
import { byId, clock, count, keyed, make, show, words, write } from "./dom.js";

const SPEEDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
/** Milliseconds after a person moves the slider in which the server's reports of the speed are outdated. */
const SETTLE = 2000;
/** Milliseconds for which the answer to a button is shown. */
const SAID = 20000;

export class Demo {
  constructor(state, { query, watch, key }) {
    // one session per page: a second search may be a reformulation of the first
    Object.assign(this, { state, query, watch, key, moved: 0, session: `page-${Math.random().toString(36).slice(2)}` });
    byId("shift").addEventListener("click", () => this.shift());
    byId("pause").addEventListener("click", () => this.control(this.state.demo?.paused ? "resume" : "pause"));
    byId("scenario").addEventListener("change", (event) => this.control("scenario", event.target.value));
    const speed = byId("speed");
    speed.addEventListener("input", () => {
      this.moved = Date.now();
      this.label(SPEEDS[speed.value]);
    });
    speed.addEventListener("change", () => this.control("speed", SPEEDS[speed.value]));
    byId("found-close").addEventListener("click", () => {
      show(byId("found"), false);
      byId("text").focus();
    });
  }

  async control(action, value) {
    try {
      const answer = await ask("/demo/control", value === undefined ? { do: action } : { do: action, value }, this.key());
      this.say(action === "scenario" ? "The service keeps what it has learnt, as a real service would." : "");
      return answer;
    } catch (trouble) {
      this.say(trouble.message, "bad");
      return null;
    }
  }

  async shift() {
    const best = { ...this.state.demo?.best };
    const query = this.query() in best ? this.query() : null;
    if (!(await this.control("shift", query ?? undefined))) return;
    this.say("From now on people want something else. The service is not told.");
    this.shifting = query === null ? best : { [query]: best[query] };
  }

  /** Report a shift once the users have confirmed it: the query, and the meaning that leads now. */
  shifted({ best }) {
    const query = Object.keys(this.shifting ?? {}).find((one) => best?.[one] && best[one] !== this.shifting[one]);
    if (query === undefined) return;
    this.shifting = undefined;
    const { meaning } = this.state.hello.demo.titles[best[query]];
    this.say(`From now on most people who ask “${query}” want “${words(meaning)}”. The service is not told.`);
    this.watch(query);
  }

  /** Say once that the operator of the simulation has pinned a result. */
  pinned(pin) {
    if (!pin || pin.at === this.pin) return;
    this.pin = pin.at;
    const title = this.state.hello.demo.titles[pin.result]?.title ?? pin.result;
    const day = clock(this.state.dated(pin.until), true);
    this.say(`An operator has pinned “${title}” to place ${pin.position} for “${pin.query}”, until ${day}.`);
  }

  /** Show a line below the buttons, for a while. */
  say(text, kind = "good") {
    write(byId("demo-said"), text);
    byId("demo-said").dataset.kind = kind;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => write(byId("demo-said"), ""), SAID);
  }

  label(speed) {
    write(byId("speed-text"), `×${speed}`);
    byId("speed").setAttribute("aria-valuetext", `times ${speed}: ${pace(speed)} of simulated time a second`);
  }

  draw() {
    const { hello, demo } = this.state;
    show(byId("demo"), Boolean(hello?.demo));
    if (!hello?.demo) return;
    this.offer(hello.demo.scenarios, Object.keys(demo?.intent ?? {}), demo?.young ?? []);
    for (const id of ["shift", "pause", "scenario", "speed"]) byId(id).disabled = !demo;
    if (!demo) return this.expected(hello.demo);
    this.shifted(demo);
    if (demo.problem) this.say(demo.problem, "bad");
    this.pinned(demo.pinned ?? null);
    const at = new Date(this.state.dated(demo.now) * 1000);
    write(byId("day"), demo.day);
    write(byId("hour"), at.toLocaleTimeString("en-GB", { timeZone: "UTC", hour: "2-digit", minute: "2-digit" }));
    byId("progress").value = Math.min(1, Math.max(0, (demo.now - demo.began) / (demo.ends - demo.began)));
    const scenario = hello.demo.scenarios.find((one) => one.name === demo.scenario);
    write(byId("demo-title"), demo.title ?? scenario?.title ?? demo.scenario);
    write(byId("story"), scenario?.story ?? "");
    write(byId("pause"), demo.paused ? "Resume" : "Pause");
    byId("pause").disabled = demo.ended;
    byId("shift").disabled = demo.ended;
    const select = byId("scenario");
    if (document.activeElement !== select && select.value !== demo.scenario) select.value = demo.scenario;
    if (Date.now() - this.moved > SETTLE) {
      const near = SPEEDS.reduce(
        (a, b, j) => (Math.abs(Math.log(b / demo.speed)) < Math.abs(Math.log(SPEEDS[a] / demo.speed)) ? j : a),
        0,
      );
      byId("speed").value = near;
      this.label(demo.speed);
    }
    const behind = !demo.paused && !demo.ended && demo.reached < demo.speed * 0.9;
    const reached = behind ? `reaches ×${Math.round(demo.reached)}` : `${pace(demo.speed)} a second`;
    write(byId("reached"), `${reached} · ${count(demo.impressions)} searches`);
  }

  /** Before the users have started: describe what they will play. */
  expected({ scenario, scenarios, speed }) {
    const one = scenarios.find(({ name }) => name === scenario);
    write(byId("demo-title"), one?.title ?? "");
    write(byId("story"), one?.story ?? "");
    write(byId("reached"), "The simulated users are starting: the first start compiles for a minute or two.");
    if (one) byId("scenario").value = scenario;
    if (speed) this.label(speed);
  }

  /** Fill the choice of scenarios, and the queries of the current one: the famous ones, and those of the tail that began last. */
  offer(scenarios, queries, young) {
    const option = (one) => {
      const node = make("option", "", one.title);
      node.value = one.name;
      return node;
    };
    keyed(
      byId("scenario"),
      scenarios,
      (one) => one.name,
      option,
      () => {},
    );
    const chip = (text) => {
      const button = make("button", "chip", text);
      button.type = "button";
      button.addEventListener("click", () => this.watch(text));
      return make("li", "", "", button);
    };
    for (const [id, texts] of Object.entries({ chips: queries, young })) {
      show(byId(id), texts.length > 0);
      keyed(
        byId(id),
        texts,
        (text) => text,
        chip,
        (node, text) => node.firstChild.setAttribute("aria-pressed", String(text === this.query())),
      );
    }
    show(byId("young-title"), young.length > 0);
  }

  /** Search as one of the users: a real ranking, and a click that counts. */
  async search(text) {
    const said = byId("found-said");
    try {
      const found = await ask(`/demo/search?${new URLSearchParams({ q: text, session: this.session })}`, undefined, this.key());
      this.found(found);
      write(said, "");
    } catch (trouble) {
      this.found({ query: text, decision: null, results: [] });
      write(said, trouble.message);
    }
  }

  found({ query, decision, results, degraded }) {
    show(byId("found"), true);
    write(byId("found-title"), `Your results for “${query}”`);
    let note = "The same service ranked these for you just now. Click on the result you wanted.";
    if (!results.length) note = "Nothing was found.";
    else if (degraded || !decision)
      note = "This is the search engine's own order: the service gave no ranking just now, so a click cannot be counted.";
    write(byId("found-note"), note);
    const list = byId("found-list");
    list.keyed = undefined;
    list.replaceChildren(...results.map((result) => this.result(result, decision)));
  }

  result({ id, title, text, meaning }, decision) {
    const button = make("button", "name quiet", title);
    button.type = "button";
    button.disabled = !decision;
    button.addEventListener("click", () => this.click(id, title, decision));
    return make(
      "li",
      "result",
      "",
      make("p", "title", "", button),
      make("p", "text", "", make("span", "badge", words(meaning)), text),
    );
  }

  async click(id, title, decision) {
    const said = byId("found-said");
    try {
      const { status } = await ask("/v1/feedback", { decision, events: [{ kind: "click", result: id }] }, this.key());
      const words = {
        learned: "Counted",
        late: "Counted, but too late for the policy to learn from it",
        ignored: "Counted, not learned (one person counts once on a result)",
        expired: "Too late to be counted",
      };
      write(said, `${words[status] ?? status}: your click on “${title}”.`);
      if (status !== "expired")
        for (const button of byId("found-list").querySelectorAll("button")) button.disabled = button.textContent !== title;
    } catch (trouble) {
      write(said, `Not counted. ${trouble.message}`);
    }
  }
}

/** Simulated time per second: at ×1 it is a minute. */
function pace(speed) {
  if (speed < 60) return `${speed} min`;
  return `${(speed / 60).toFixed(1)} h`;
}
