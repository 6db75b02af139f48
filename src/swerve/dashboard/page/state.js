// What the page knows: the messages of the stream, kept and made into the figures that are shown.

/** At most this many points of a series; the older half is thinned when there are more. */
const MOST = 900;
/** The ranking shows the last answers: whole samples, from the newest, until there are this many. */
const LAST_ANSWERS = 50;
/** A click share is taken over at least this many clicks. */
const LAST_CLICKS = 60;
/** Points that a chart draws: more cannot be seen. */
const DRAWN = 240;
/** Two results swap places only when their shares differ by this much: chance alone must not make the list restless. */
const STEADY = 0.04;
const DAY = 86400;

/** Halve the older half of a series; `join(a, b)` puts two neighbours into one. */
export function thin(series, join) {
  if (series.length <= MOST) return series;
  const half = series.length >> 1;
  const kept = [];
  for (let j = 0; j + 1 < half; j += 2) kept.push(join(series[j], series[j + 1]));
  return kept.concat(series.slice(kept.length * 2));
}

const later = (a, b) => b;

function add(into, tops) {
  for (const [id, times] of Object.entries(tops)) into[id] = (into[id] ?? 0) + times;
  return into;
}

/** Of the clicks between two points, how many each result got. */
function between(a, b) {
  const clicks = {};
  let all = 0;
  for (const [id, [, total]] of Object.entries(b.arms)) {
    // a result that was evicted and came back begins at 0 again
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

  /** What is known of the watched query. */
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
   * A time of the service as a date to show. A simulation's time only goes forward: a scenario that is played after another one has
   * dates of its own.
   */
  dated(seconds) {
    const { demo } = this;
    if (!demo) return seconds;
    const since = Math.min(demo.now - demo.began, demo.ends - demo.began - 1);
    return Math.round(seconds + Date.parse(`${demo.day} UTC`) / 1000 + (since % DAY) - (demo.began + since));
  }

  /** One message of the stream. */
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

  /** The past of a simulation, in brief: what this page saw of the same one is more, and is kept. */
  past(reports) {
    const seen = this.demo;
    const goesOn =
      seen && reports.some((report) => report.scenario === seen.scenario && report.began === seen.began && report.now >= seen.now);
    if (!goesOn) this.demos = [];
    for (const report of reports) if (!goesOn || report.now > seen.now) this.reported(report);
  }

  reported(report) {
    // another scenario, or the same one again: its tallies begin anew
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
    this.point({ now: data.now, tops: data.tops, arms, phase: data.state.phase });
  }

  point(point) {
    const last = this.points.at(-1);
    if (last && point.now < last.now) this.points = [];
    // while the time stands still the newest point is replaced
    else if (last && point.now === last.now) {
      this.points.pop();
      point = { ...point, tops: add({ ...last.tops }, point.tops) };
    }
    this.points.push(point);
    this.points = thin(this.points, (a, b) => ({ ...b, tops: add({ ...a.tops }, b.tops) }));
  }

  /** How often each result was on top of the last answers: `{answers, share: {id: part}}`. */
  tops() {
    const sum = {};
    let answers = 0;
    for (let j = this.points.length - 1; j >= 0 && answers < LAST_ANSWERS; j--) {
      const { tops } = this.points[j];
      add(sum, tops);
      answers += Object.values(tops).reduce((a, b) => a + b, 0);
    }
    for (const id of Object.keys(sum)) sum[id] /= answers;
    return { answers, share: sum };
  }

  /**
   * The order that most people see: by how often a result was on top of the last answers, the others as in the last answer.
   * Steady: what was above stays above while the shares are close.
   */
  ranking() {
    if (!this.current) return { order: [], answers: 0, share: {} };
    const { answers, share } = this.tops();
    const given = this.current.ranking.length ? this.current.ranking : this.current.state.arms.map((arm) => arm.id);
    const offered = new Set(given);
    const order = this.order.filter((id) => offered.has(id));
    for (const id of given) if (!order.includes(id)) order.push(id);
    const part = (id) => share[id] ?? 0;
    // insertion sort: a result passes another only when it is clearly ahead
    for (let j = 1; j < order.length; j++) {
      for (let k = j; k > 0 && part(order[k]) > part(order[k - 1]) + STEADY; k--)
        [order[k - 1], order[k]] = [order[k], order[k - 1]];
    }
    this.order = order;
    return { order, answers, share };
  }

  /** The share of the clicks that each result got, over time: `{times, shares: Map(id → parts), latest: {id: part}, window}`. */
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

  /** What people want over time, by meaning: `{times, shares}`; only a simulation knows. */
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

  /** When a phase began, as far as the points say. */
  phases() {
    return this.points.filter((point, j) => j && point.phase !== this.points[j - 1].phase).map((point) => point.now);
  }

  /** Events of a query, with how many impressions it took to adapt to them (null: not yet, or not known). */
  events(query) {
    const adapted = new Map((this.demo?.adapt ?? []).filter((one) => one.query === query).map((one) => [one.at, one.impressions]));
    return (this.demo?.events ?? [])
      .filter((event) => event.query === query)
      .map((event) => ({ ...event, took: adapted.get(event.at) ?? null }));
  }
}

/** Of a long series, so many that a chart can show, the last one among them. */
function spread(series) {
  const step = Math.max(1, Math.ceil(series.length / DRAWN));
  return series.filter((_, j) => (series.length - 1 - j) % step === 0);
}
