// The present ranking of the watched query.

import { byId, count, keyed, make, named, percent, show, words, write } from "./dom.js";

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
/** Milliseconds between two announcements of a new top result to screen readers. */
const QUIET = 8000;
/** Results of a page. */
const SHOWN = 10;
/** A result is marked as explored if it was that in this part of the last answers. */
const EXPLORED = 0.02;
/** Below the first place it is said how often a result was on top only from this part of the last answers on. */
const OFTEN = 0.05;

export class Ranking {
  constructor(state, colours) {
    Object.assign(this, { state, colours, list: byId("ranking") });
    this.reset();
  }

  /** Start over, for another query. */
  reset() {
    this.top = null;
    this.since = null;
    clearTimeout(this.saying);
    this.saying = undefined;
  }

  title(id) {
    return this.state.hello?.demo?.titles[id]?.title ?? id;
  }

  draw(query) {
    const { state } = this;
    write(byId("ranking-title"), query === null ? "Ranking" : `${named(query)} now`);
    const { order, answers, share, explored } = state.ranking();
    const { clicks, slots } = state.slotClicks();
    const given = state.current?.given ?? [];
    const arms = new Map((state.current?.state.arms ?? []).map((arm) => [arm.id, arm]));
    const best = state.demo?.best?.[query] ?? null;
    const ruled = new Map();
    // of rules for one result a block goes before a pin, and a pin before a boost
    for (const kind of ["boost", "pin", "block", "off"])
      for (const rule of state.current?.ruled ?? []) if (rule.kind === kind) ruled.set(rule.result, rule);
    const before = new Map([...this.list.children].map((node) => [node, node.getBoundingClientRect().top]));
    const items = order.slice(0, SHOWN).map((id, place) => ({
      id,
      place,
      share: answers ? (share[id] ?? 0) : null,
      explored: explored[id] ?? 0,
      arm: arms.get(id),
      best: id === best,
      rank: given.indexOf(id),
      rule: ruled.get(id),
      clicks: clicks ? (slots[place] ?? 0) / clicks : null,
    }));
    const nodes = keyed(
      this.list,
      items,
      (item) => item.id,
      (item) => this.create(item),
      (node, item) => this.update(node, item),
    );
    this.glide([...nodes.values()], before);
    this.note(query, order.length, answers, clicks);
    this.verdict(query, order[0], best);
    this.ruled(ruled);
    this.follow(query, order[0]);
  }

  create({ id }) {
    const known = this.state.hello?.demo?.titles[id];
    const node = make("li", known ? "result" : "result bare");
    const head = make("p", "title", "", make("span", "name", known?.title ?? id));
    head.append(make("span", "badge best", "wanted most now"), make("span", "badge mark"));
    const [text, explored] = [make("p", "text"), make("span", "badge explored")];
    if (known) text.append(make("span", "badge", words(known.meaning)), explored, make("span", "words", known.text));
    else head.append(explored);
    const bar = make("span", "bar-line", "", make("span", "bar-fill"));
    const clicks = make("span", "clicks soft", "", make("span", "part"), make("span", "unit", " of clicks"));
    const slot = make("p", "slot", "", bar, clicks);
    node.append(make("p", "moved"), head, make("p", "figure"), text, slot, make("p", "rate soft"));
    return node;
  }

  update(node, { id, place, share, explored, arm, best, rank, rule, clicks }) {
    node.classList.toggle("first", place === 0);
    node.style.setProperty("--own", this.colours.result(id, this.state.hello?.demo?.titles[id]?.meaning));
    show(node.querySelector(".best"), best);
    const marked = node.querySelector(".mark");
    show(marked, Boolean(rule));
    write(marked, rule ? { pin: `pinned to ${rule.position}`, boost: "boosted", block: "blocked" }[rule.kind] : "");
    const tried = node.querySelector(".explored");
    show(tried, explored >= EXPLORED);
    write(tried, `explored ${percent(explored)}`);
    this.moved(node.querySelector(".moved"), place, rank);
    node.querySelector(".bar-fill").style.setProperty("--part", (clicks ?? 0).toFixed(3));
    show(node.querySelector(".clicks"), clicks !== null);
    write(node.querySelector(".part"), percent(clicks));
    const often = share !== null && (place === 0 || share >= OFTEN);
    write(node.querySelector(".figure"), often ? `${percent(share)} on top` : "");
    const rate =
      arm && arm.phase_plays ? `${percent(arm.phase_clicks / arm.phase_plays)} of ${count(arm.phase_plays)} clicked` : "";
    write(node.querySelector(".rate"), rate);
  }

  /** How many places a result is above or below its rank in the given order. */
  moved(node, place, rank) {
    const steps = rank - place;
    const known = rank >= 0;
    write(node, known ? (steps > 0 ? `↑${steps}` : steps < 0 ? `↓${-steps}` : "=") : "");
    const order = this.state.simulated ? "the engine's order" : "the given order";
    const words = known ? `Rank ${rank + 1} in ${order}` : "";
    if (node.title !== words) node.title = words;
    node.dataset.way = steps > 0 ? "up" : "";
  }

  /** Animate each result from its old position to its new one; the figures of a slot stay where they are. */
  glide(nodes, before) {
    if (calm.matches || document.hidden) return;
    for (const node of nodes) {
      if (!before.has(node)) {
        node.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 500 });
        continue;
      }
      const moved = before.get(node) - node.getBoundingClientRect().top;
      if (Math.abs(moved) < 2) continue;
      const frames = [
        { transform: `translateY(${moved}px)`, zIndex: 1 },
        { transform: "none", zIndex: 1 },
      ];
      const timing = { duration: 650, easing: "cubic-bezier(.2, .7, .2, 1)" };
      node.animate(frames, timing);
      node.querySelector(".slot").animate([{ transform: `translateY(${-moved}px)` }, { transform: "none" }], timing);
    }
  }

  note(query, results, answers, clicks) {
    let text;
    if (query === null) text = "There are no queries yet. The first one will be shown here.";
    else if (this.state.missing) text = "This query was never asked. It will be shown as soon as somebody asks it.";
    else if (!results) text = "Waiting for the first answer.";
    else if (!answers) text = "No answers since this page began to watch; the list shows the last answer's order.";
    else {
      const order = this.state.simulated ? "the engine's order" : "the given order";
      text = `The usual places in the last ${count(answers)} answers; ↑ and ↓ compare with ${order}.`;
      if (clicks) text += ` Bars: where on the page the last ${count(clicks)} clicks were.`;
      if (results > SHOWN) text += ` ${count(results - SHOWN)} more results follow.`;
    }
    write(byId("ranking-note"), text);
    const state = this.state.current?.state;
    const pill = byId("phase");
    show(pill, Boolean(state) && !this.state.missing);
    if (state) write(pill, state.testing ? `phase ${state.phase}: testing an alarm` : `phase ${state.phase}`);
    pill.classList.toggle("busy", Boolean(state?.testing));
  }

  /** Say what operators' rules do to the whole page. */
  ruled(rules) {
    const blocked = [...rules.values()].filter(({ kind }) => kind === "block").map(({ result }) => `“${this.title(result)}”`);
    const off = rules.has(null) ? "An operator has switched the policy off here: people get the given order. " : "";
    const text = off + (blocked.length ? `Blocked by an operator: ${blocked.join(", ")}.` : "");
    show(byId("ruled"), text !== "");
    write(byId("ruled"), text);
  }

  /** In a simulation, say whether the ranking follows the intent. */
  verdict(query, top, best) {
    const node = byId("verdict");
    show(node, Boolean(best && top));
    if (!best || !top) return;
    const right = top === best || this.state.hello.demo.titles[top]?.meaning === this.state.hello.demo.titles[best]?.meaning;
    node.dataset.right = right;
    const last = this.state.events(query).at(-1);
    const wanted = words(this.state.hello.demo.titles[best]?.meaning ?? best);
    if (right)
      write(
        node,
        last?.took
          ? `The top result is the one that people want. The service needed ${count(last.took)} impressions.`
          : "The top result is the one that people want.",
      );
    else write(node, `Intent has shifted: people want “${wanted}”. The service has not followed yet.`);
  }

  /** Announce a new top result to screen readers, but not too often. */
  follow(query, top) {
    if (!top || top === this.top) return;
    const first = this.top === null;
    this.top = top;
    if (first || this.saying !== undefined) return;
    const say = () => {
      write(byId("say"), `New top result for ${named(query).replace(/[“”]/g, "")}: ${this.title(this.top)}`);
      this.told = this.top;
      this.saying = setTimeout(() => {
        this.saying = undefined;
        if (this.told !== this.top) say();
      }, QUIET);
    };
    say();
  }
}

/** The signals of the watched query. */
export function drawSignals(state) {
  const signals = Object.entries(state.current?.state.signals ?? {});
  show(byId("signals-part"), signals.length > 0 && !state.missing);
  const create = ([name]) => {
    const bar = make("span", "bar-line", "", make("span", "bar-fill"));
    return make("li", "", "", make("span", "name", words(name)), bar, make("span", "figure"));
  };
  keyed(
    byId("signals"),
    signals,
    ([name]) => name,
    create,
    (node, [, value]) => {
      node.querySelector(".bar-fill").style.setProperty("--part", (value ?? 0).toFixed(3));
      write(node.querySelector(".figure"), value === null ? "–" : value.toFixed(2));
      node.classList.toggle("loud", value >= 0.5);
    },
  );
}
