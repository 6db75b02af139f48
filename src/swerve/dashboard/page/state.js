// The state of the page: the messages of the stream, and the figures computed from them.

/** Largest number of points of a series; beyond it, the older half is thinned. */
const MOST = 900;
/** The ranking shows the last answers: whole samples, from the newest, until there are this many. */
const LAST_ANSWERS = 50;
/** Fewest clicks over which a click share is computed. */
const LAST_CLICKS = 60;
/** Clicks by slot are those of the last samples with this many clicks. */
const LAST_SLOTS = 200;
/** Points that a chart draws: more cannot be seen. */
const DRAWN = 240;
/** Two results swap places only if their mean places differ by this much, so that chance does not make the list restless. */
const STEADY = 0.25;
const DAY = 86400;

/** Halve the older half of a series; `join(a, b)` merges two neighbours. */
export function thin(series, join) {
  if (series.length <= MOST) return series;
  const half = series.length >> 1;
  const kept = [];
  for (let j = 0; j + 1 < half; j += 2) kept.push(join(series[j], series[j + 1]));
  return kept.concat(series.slice(kept.length * 2));
}

const later = (a, b) => b;

function add(into, counts = {}) {
  for (const [id, times] of Object.entries(counts)) into[id] = (into[id] ?? 0) + times;
  return into;
}

/** Add places: how often each result was shown, and the sum of its slots. */
function addPlaces(into, places = {}) {
  for (const [id, [times, sum]] of Object.entries(places)) {
    const [before, slots] = into[id] ?? [0, 0];
    into[id] = [before + times, slots + sum];
  }
  return into;
}

const addSlots = (a = [], b = []) => Array.from({ length: Math.max(a.length, b.length) }, (_, j) => (a[j] ?? 0) + (b[j] ?? 0));
const total = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);

/** Merge two neighbouring points: the later one, with what happened in both. */
const merge = (a, b) => ({
  ...b,
  tops: add({ ...a.tops }, b.tops),
  places: addPlaces({ ...a.places }, b.places),
  slots: addSlots(a.slots, b.slots),
  explored: add({ ...a.explored }, b.explored),
});

/** The clicks of each result between two points. */
function between(a, b) {
  const clicks = {};
  let all = 0;
  for (const [id, [, total]] of Object.entries(b.arms)) {
    // a result that was evicted and came back starts at 0 again
    const got = Math.max(0, total - (a.arms[id]?.[1] ?? 0));
    if (got) clicks[id] = got;
    all += got;
  }
  return { clicks, all };
}

export class State {
  constructor() {
    this.hello = null;
    this.samples = [];
    this.demos = [];
    this.forget();
  }

  /** Reset the state of the watched query. */
  forget() {
    this.points = [];
    this.current = null;
    this.missing = false;
    this.order = [];
  }

  get simulated() {
    return Boolean(this.hello?.demo);
  }

  get sample() {
    return this.samples.at(-1) ?? null;
  }

  get demo() {
    return this.demos.at(-1) ?? null;
  }

  /**
   * A time of the service as the date to show. The simulated clock only goes forward, so a later scenario has dates of its own that
   * differ from the clock.
   */
  dated(seconds) {
    const { demo } = this;
    if (!demo) return seconds;
    const since = Math.min(demo.now - demo.began, demo.ends - demo.began - 1);
    return Math.round(seconds + Date.parse(`${demo.day} UTC`) / 1000 + (since % DAY) - (demo.began + since));
  }

  /** Handle one message of the stream. */
  take(name, data) {
    if (name === "hello") {
      if (!data.resumed) this.forget();
      this.hello = data;
    } else if (name === "history") {
      this.samples = data.samples ?? [];
      for (const point of data.query ?? []) this.point(point);
      this.past(data.demo ?? []);
      if (this.demo) this.points = this.points.filter((point) => point.now >= this.demo.began);
    } else if (name === "sample") this.sampled(data);
    else if (name === "query") this.asked(data);
    else if (name === "demo") this.reported(data);
  }

  sampled(sample) {
    this.samples.push(sample);
    this.samples = thin(this.samples, later);
  }

  /** Take over the brief history of a simulation; points that this page has seen itself are more complete and are kept. */
  past(reports) {
    const seen = this.demo;
    const goesOn =
      seen && reports.some((report) => report.scenario === seen.scenario && report.began === seen.began && report.now >= seen.now);
    if (!goesOn) this.demos = [];
    for (const report of reports) if (!goesOn || report.now > seen.now) this.reported(report);
  }

  reported(report) {
    // another scenario, or the same one again: its totals start over
    if (this.demo && (this.demo.scenario !== report.scenario || this.demo.began !== report.began)) {
      this.demos = [];
      this.points = this.points.slice(-1);
    }
    if (this.demo && report.now <= this.demo.now) this.demos.pop();
    this.demos.push(report);
    this.demos = thin(this.demos, later);
  }

  asked(data) {
    this.missing = Boolean(data.missing);
    if (this.missing) return;
    this.current = data;
    const arms = Object.fromEntries(data.state.arms.map((arm) => [arm.id, [arm.plays, arm.clicks]]));
    const { now, tops, places, slots, explored } = data;
    this.point({ now, tops, places, slots, explored, arms, phase: data.state.phase });
  }

  point(point) {
    const last = this.points.at(-1);
    if (last && point.now < last.now) this.points = [];
    // while time stands still, the newest point is replaced
    else if (last && point.now === last.now) {
      this.points.pop();
      point = merge(last, point);
    }
    this.points.push(point);
    this.points = thin(this.points, merge);
  }

  /**
   * The last answers: `{answers, share, places, explored}`. By result: how often it was on top, its mean slot (from 0), and how often
   * it was the explored one.
   */
  tops() {
    let answers = 0;
    const sum = { tops: {}, places: {}, explored: {} };
    for (let j = this.points.length - 1; j >= 0 && answers < LAST_ANSWERS; j--) {
      const point = this.points[j];
      add(sum.tops, point.tops);
      add(sum.explored, point.explored);
      addPlaces(sum.places, point.places);
      answers += total(point.tops);
    }
    const parts = (counts) => Object.fromEntries(Object.entries(counts).map(([id, times]) => [id, times / answers]));
    const places = Object.fromEntries(Object.entries(sum.places).map(([id, [times, slots]]) => [id, slots / times]));
    return { answers, share: parts(sum.tops), places, explored: parts(sum.explored) };
  }

  /** The last clicks by slot: `{clicks, slots: counts}`. */
  slotClicks() {
    let [slots, clicks] = [[], 0];
    for (let j = this.points.length - 1; j >= 0 && clicks < LAST_SLOTS; j--) {
      slots = addSlots(slots, this.points[j].slots);
      clicks = total(slots);
    }
    return { clicks, slots };
  }

  /**
   * The order that most users see: by the mean place of each result in the last answers. Results whose places are close keep their
   * order.
   */
  ranking() {
    if (!this.current) return { order: [], answers: 0, share: {}, explored: {} };
    const { answers, share, places, explored } = this.tops();
    const given = this.current.ranking.length ? this.current.ranking : this.current.state.arms.map((arm) => arm.id);
    const offered = new Set(given);
    const order = this.order.filter((id) => offered.has(id));
    for (const id of given) if (!order.includes(id)) order.push(id);
    const place = (id) => places[id] ?? Infinity; // below the page
    // insertion sort: a result passes another only if it is clearly ahead
    for (let j = 1; j < order.length; j++) {
      for (let k = j; k > 0 && place(order[k]) < place(order[k - 1]) - STEADY; k--)
        [order[k - 1], order[k]] = [order[k], order[k - 1]];
    }
    this.order = order;
    return { order, answers, share, explored };
  }

  /** Shares of clicks over time: `{times, shares: Map(id → parts), latest: {id: part}, window}`. */
  clickShares() {
    const { points } = this;
    const times = [];
    const shares = new Map();
    const step = Math.max(1, Math.ceil(points.length / DRAWN));
    let from = 0;
    let window = 0;
    for (let j = 1; j < points.length; j++) {
      while (from + 1 < j && between(points[from + 1], points[j]).all >= LAST_CLICKS) from += 1;
      if (j % step && j !== points.length - 1) continue;
      const { clicks, all } = between(points[from], points[j]);
      if (!all) continue;
      window = all;
      for (const [id, got] of Object.entries(clicks)) {
        if (!shares.has(id)) shares.set(id, new Array(times.length).fill(0));
        shares.get(id).push(got / all);
      }
      times.push(points[j].now);
      for (const parts of shares.values()) if (parts.length < times.length) parts.push(0);
    }
    const latest = Object.fromEntries([...shares].map(([id, parts]) => [id, parts.at(-1)]));
    return { times, shares, latest, window };
  }

  /** Shares of the meanings over time: `{times, shares}`; known only in a simulation. */
  intents(query) {
    const reports = spread(this.demos.filter((report) => report.intent?.[query]));
    const names = new Set(reports.flatMap((report) => Object.keys(report.intent[query])));
    const times = reports.map((report) => report.now);
    const shares = new Map([...names].map((name) => [name, reports.map((report) => report.intent[query][name] ?? 0)]));
    return { times, shares };
  }

  /** The regret of each policy over time: `{times, lines: {policy: values}}`. */
  regrets() {
    const reports = spread(this.demos);
    const names = Object.keys(this.demo?.regret ?? {});
    const lines = Object.fromEntries(names.map((name) => [name, reports.map((report) => report.regret[name] ?? null)]));
    return { times: reports.map((report) => report.now), lines };
  }

  /** The beginning of a phase, as far as the points show it. */
  phases() {
    return this.points.filter((point, j) => j && point.phase !== this.points[j - 1].phase).map((point) => point.now);
  }

  /** Events of a query, with the impressions until the service followed them (null: not yet, or unknown). */
  events(query) {
    const adapted = new Map((this.demo?.adapt ?? []).filter((one) => one.query === query).map((one) => [one.at, one.impressions]));
    return (this.demo?.events ?? [])
      .filter((event) => event.query === query)
      .map((event) => ({ ...event, took: adapted.get(event.at) ?? null }));
  }
}

/** Thin a long series to the number of points that a chart shows, keeping the last one. */
function spread(series) {
  const step = Math.max(1, Math.ceil(series.length / DRAWN));
  return series.filter((_, j) => (series.length - 1 - j) % step === 0);
}
